# The command line alone: docker run --rm -i --network none faultbook < train.log
# or, for a folder: docker run --rm --network none -v "$PWD/logs:/logs:ro" faultbook diagnose /logs
FROM python:3.13-slim AS build
WORKDIR /source
COPY pyproject.toml hatch_build.py README.md LICENSE ./
COPY sdk sdk
COPY schema schema
COPY site_plugins site_plugins
COPY kb kb
COPY proofs proofs
RUN python -m pip wheel --no-cache-dir --no-deps --wheel-dir /wheels .

FROM python:3.13-slim
COPY --from=build /wheels /wheels
# The accelerated scan where the platform has wheels for it; answers are identical without.
RUN python -m pip install --no-cache-dir /wheels/*.whl zstandard \
    && (python -m pip install --no-cache-dir --only-binary :all: hyperscan ahocorasick_rs || true) \
    && rm -rf /wheels \
    && useradd --uid 10001 --no-create-home --shell /usr/sbin/nologin faultbook
USER 10001
WORKDIR /
ENTRYPOINT ["faultbook"]
CMD ["diagnose", "-"]
