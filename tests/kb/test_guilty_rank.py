"""Who hung the job: the guilty rank is moved over all ranks, and the diagnosis follows it, or says that it cannot know."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from faultbook import diagnose
from faultbook_repro.core.runner import Runner
from faultbook_repro.core.spec import load_spec

HANGS = ("fsdp-divergent-parameter-init-hang", "moe-pipeline-stage-asymmetry-hang")
pytestmark = pytest.mark.repro


@pytest.mark.parametrize("guilty", range(4))
@pytest.mark.parametrize("slug", HANGS)
def test_dumps_beside_the_logs_name_the_guilty_rank(slug: str, guilty: int, runner: Runner, root: Path, tmp_path: Path):
    outcome = runner.run(root / "kb" / "model" / slug, guilty=guilty, keep=tmp_path)
    assert "hangs" in outcome.symptoms
    answer = diagnose(tmp_path)
    assert answer.initiating is not None
    assert (answer.initiating.scope, answer.initiating.rank) == ("rank", guilty), answer.initiating.basis
    assert answer.diagnoses[0].entry == slug


def two_ranks(runner: Runner, root: Path, keep: Path, guilty: int) -> list[Path]:
    """The FSDP hang with two ranks, its logs without the dumps and without the count that the script prints."""
    spec = load_spec(root / "kb" / "model" / HANGS[0])
    runner.run(replace(spec, world_size=2), guilty=guilty, keep=keep)
    shutil.rmtree(keep / "fr", ignore_errors=True)
    logs = sorted(keep.glob("rank_*.log"))
    for log in logs:
        lines = log.read_text("utf-8").splitlines(keepends=True)
        log.write_text("".join(line for line in lines if "parameters=" not in line), "utf-8")
    return logs


@pytest.mark.parametrize("guilty", [0, 1])
def test_two_ranks_without_dumps_cannot_be_known(guilty: int, runner: Runner, root: Path, tmp_path: Path):
    answer = diagnose(*two_ranks(runner, root, tmp_path, guilty))
    assert answer.verdict in ("diagnosed", "unrecognised")
    assert answer.initiating is not None
    assert answer.initiating.scope == "unknown"
    assert any("flight recorder" in lead["text"] for lead in answer.leads)
