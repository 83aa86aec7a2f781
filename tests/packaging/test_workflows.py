"""Workflows, forms and the action: well-formed, with the rights they need and no more, and their steps do what they say."""

from __future__ import annotations

import importlib.util
import json
import os
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

yaml = pytest.importorskip("yaml")

ROOT = Path(__file__).resolve().parents[2]
WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))
FORMS = sorted(p for p in (ROOT / ".github" / "ISSUE_TEMPLATE").glob("*.yml") if p.name != "config.yml")


def load(path: Path) -> dict[str, Any]:
    data = yaml.safe_load(path.read_text(encoding="utf-8"))
    assert isinstance(data, dict)
    return {"on" if key is True else key: value for key, value in data.items()}  # YAML 1.1 reads `on` as a truth value


def steps_of(path: Path) -> list[dict[str, Any]]:
    data = load(path)
    jobs = data["jobs"].values() if "jobs" in data else [data["runs"]]
    return [step for job in jobs for step in job.get("steps", ())]


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda p: p.name)
def test_a_workflow_has_the_least_rights(path: Path) -> None:
    data = load(path)
    assert data["name"] and data["on"] and data["jobs"]
    assert data["permissions"] == {"contents": "read"}, "a job that needs more asks for it itself"
    assert "pull_request_target" not in data["on"]
    for name, job in data["jobs"].items():
        assert "uses" in job or (job["runs-on"] and job["steps"]), name
        assert "uses" in job or "timeout-minutes" in job or name == "deploy", f"{name} may run for hours"
        assert set(job.get("permissions", {})) <= {"pages", "id-token", "attestations"}
    if "pull_request" in data["on"]:
        text = json.dumps(data["jobs"])
        assert "secrets" not in text and "self-hosted" not in text and "id-token" not in text


@pytest.mark.parametrize("path", [*WORKFLOWS, ROOT / "action.yml"], ids=lambda p: p.name)
def test_actions_are_pinned_and_no_text_of_others_gets_into_a_shell(path: Path) -> None:
    for step in steps_of(path):
        if "uses" in step and not step["uses"].startswith("./"):
            assert re.fullmatch(r"[\w.-]+/[\w./-]+@[0-9a-f]{40}", step["uses"]), step["uses"]
        if step.get("uses", "").startswith("actions/checkout@"):
            assert step["with"]["persist-credentials"] is False
        assert "${{" not in step.get("run", ""), "expressions go through env, where they are no code"
    for match in re.findall(r"uses: (?!\./)\S+(.*)", path.read_text()):
        assert re.fullmatch(r" # v\d+\.\d+\.\d+", match), "the comment says which version the commit is"


@pytest.mark.parametrize("path", FORMS, ids=lambda p: p.name)
def test_an_issue_form_has_what_github_demands(path: Path) -> None:
    data = load(path)
    assert {"name", "description", "body"} <= set(data) <= {"name", "description", "title", "labels", "body"}
    ids = [field["id"] for field in data["body"] if field["type"] != "markdown"]
    assert len(ids) == len(set(ids)) and all(re.fullmatch(r"[A-Za-z0-9_-]+", name) for name in ids)
    for field in data["body"]:
        assert field["type"] in ("markdown", "textarea", "input", "dropdown", "checkboxes")
        assert set(field) <= {"type", "id", "attributes", "validations"}
        assert "value" in field["attributes"] if field["type"] == "markdown" else field["attributes"]["label"]
        if field["type"] in ("dropdown", "checkboxes"):
            assert len(field["attributes"]["options"]) > 1
    assert any(field.get("validations", {}).get("required") for field in data["body"])


def test_the_three_forms_are_there_and_ask_for_masked_logs_only() -> None:
    names = {load(path)["name"] for path in FORMS}
    assert names == {"My run failed like this", "This diagnosis was wrong", "This page is wrong"}
    for path in FORMS:
        if "log" in {field.get("id") for field in load(path)["body"]}:
            assert "--share" in path.read_text()


def git(folder: Path, *command: str) -> None:
    who = ["-c", "user.name=x", "-c", "user.email=x@example.org"]
    subprocess.run(["git", *who, *command], cwd=folder, check=True, capture_output=True)


def environment(folder: Path, **more: str) -> dict[str, str]:
    folder.mkdir(exist_ok=True)
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    files = {name: str(folder / name) for name in ("GITHUB_STEP_SUMMARY", "GITHUB_OUTPUT")}
    return {**os.environ, "PATH": path, "RUNNER_TEMP": str(folder), **files, **more}


@pytest.mark.repro
@pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="needs torch")
def test_a_pull_request_that_touches_one_entry_is_verified_in_time(tmp_path: Path) -> None:
    """The steps after the installation, as the workflow has them, on a clone with one changed entry."""
    from faultbook_repro.isolation import lacking

    if reason := lacking():
        pytest.skip(f"this machine cannot isolate: {reason}")
    upstream, clone = tmp_path / "upstream", tmp_path / "clone"
    for name in ("kb", "proofs"):
        shutil.copytree(ROOT / name, upstream / name, ignore=shutil.ignore_patterns("__pycache__"))
    git(upstream, "init", "-q", "-b", "main")
    git(upstream, "add", "-A")
    git(upstream, "commit", "-q", "-m", "main")
    git(tmp_path, "clone", "-q", str(upstream), str(clone))
    git(clone, "checkout", "-q", "-b", "mine")
    repro = clone / "kb" / "model" / "loss-has-no-grad-fn" / "repro.py"
    repro.write_text(repro.read_text(encoding="utf-8") + "\n# touched\n", encoding="utf-8")
    git(clone, "commit", "-qam", "mine")

    steps = steps_of(ROOT / ".github" / "workflows" / "entries.yml")
    installed = next(i for i, step in enumerate(steps) if step.get("name") == "Install")
    told, ran, started = "", [], time.monotonic()
    for step in steps[installed + 1 :]:
        if "run" not in step or "sudo" in step["run"] or step.get("if") == "failure()":
            continue
        values = {k: v.replace("${{ github.base_ref }}", "main") for k, v in step.get("env", {}).items()}
        done = subprocess.run(
            ["bash", "-eo", "pipefail", "-c", step["run"]],
            cwd=clone,
            env=environment(tmp_path / "runner", **values),
            capture_output=True,
            text=True,
            timeout=240,
        )
        ran.append(step["name"])
        told += done.stdout + done.stderr
        assert done.returncode == 0, told[-3000:]
    seconds = time.monotonic() - started
    print(f"\nthe workflow's steps after installation, one changed entry: {seconds:.1f} s")
    assert ran == ["Verify what changed"] and seconds < 120
    summary = (tmp_path / "runner" / "GITHUB_STEP_SUMMARY").read_text(encoding="utf-8")
    assert "✅" in summary and "1 of 1 changed entries proven" in summary
    assert "| loss-has-no-grad-fn | cpu | real | raises |" in summary
    assert "writes the proof record" in summary, "the record on main is of the program before the change"


def action(folder: Path, **given: str) -> subprocess.CompletedProcess[str]:
    """Its diagnosing step, with this environment in place of the installing one."""
    (step,) = (s for s in load(ROOT / "action.yml")["runs"]["steps"] if s["id"] == "diagnose")
    tools = folder / "faultbook" / "bin"
    tools.mkdir(parents=True, exist_ok=True)
    for name, command in (("python", sys.executable), ("faultbook", f"{sys.executable} -m faultbook.cli")):
        (tools / name).write_text(f'#!/bin/sh\nexec {command} "$@"\n')
        (tools / name).chmod(0o755)
    inputs = {name: value.get("default", "") for name, value in load(ROOT / "action.yml")["inputs"].items()} | given
    values = {name: inputs[re.fullmatch(r"\$\{\{ inputs\.(\w+) \}\}", value)[1]] for name, value in step["env"].items()}  # type: ignore[index]
    return subprocess.run(
        ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", step["run"]],
        cwd=folder,
        env=environment(folder, **values),
        capture_output=True,
        text=True,
        timeout=120,
    )


def test_the_action_writes_the_summary_and_its_outputs(tmp_path: Path) -> None:
    sample = ROOT / "samples" / "fsdp-hang-4-ranks"
    done = action(tmp_path, logs=f"{sample}/rank_*.log\n")
    assert done.returncode == 0, done.stderr
    outputs = dict(line.split("=") for line in (tmp_path / "GITHUB_OUTPUT").read_text().split())
    assert outputs["verdict"] == "diagnosed" and outputs["entry"]
    assert (tmp_path / "GITHUB_STEP_SUMMARY").read_text(encoding="utf-8").count("rank_2.log")
    assert json.loads((tmp_path / "faultbook.json").read_text())["verdict"] == "diagnosed"


def test_the_action_fails_only_when_asked_to_or_given_nothing(tmp_path: Path) -> None:
    log = tmp_path / "a log; touch pwned $(touch pwned).txt"
    log.write_text("step 1 loss 0.5\nRuntimeError: something nobody knows\n")
    assert action(tmp_path, logs=str(log), fail="true").returncode == 1
    assert "verdict=unrecognised\nentry=\n" in (tmp_path / "GITHUB_OUTPUT").read_text()
    assert action(tmp_path, logs="no-such-file").returncode == 2
    missing = action(tmp_path, logs="no-such-*.log")
    assert missing.returncode == 2 and missing.stdout == "::error::no such file or folder among the logs given\n"
    assert action(tmp_path, logs="").returncode == 2
    assert not list(tmp_path.glob("pwned*"))


def test_tonights_records_replace_the_committed_ones_of_what_ran(tmp_path: Path) -> None:
    tonight = ("tonight/proofs-newest/a.cpu.json", "tonight/proofs-oldest/a.cpu.json")
    for name in (*tonight, "proofs/b.cpu.json", "proofs/a.cuda.json"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("{}")
    subprocess.run([ROOT / ".github" / "tonight.sh", "tonight", "proofs"], cwd=tmp_path, check=True, capture_output=True)
    assert sorted(p.name for p in (tmp_path / "proofs").iterdir()) == ["a.cpu.json", "a.cpu.oldest.json", "a.cuda.json"]
    (tmp_path / "nothing").mkdir()
    subprocess.run([ROOT / ".github" / "tonight.sh", "nothing", "proofs"], cwd=tmp_path, check=True, capture_output=True)
    assert len(list((tmp_path / "proofs").iterdir())) == 3, "nights without runs change nothing"


def test_the_container_runs_as_nobody_in_particular() -> None:
    lines = (ROOT / "Dockerfile").read_text().splitlines()
    last = lines[max(i for i, line in enumerate(lines) if line.startswith("FROM ")) :]
    assert "USER 10001" in last and 'ENTRYPOINT ["faultbook"]' in last and 'CMD ["diagnose", "-"]' in last
    copied = {word for line in lines if line.startswith("COPY ") and "--from" not in line for word in line.split()[1:-1]}
    assert all((ROOT / name).exists() for name in copied)
    ignored = (ROOT / ".dockerignore").read_text().split()
    assert {f"!{name}" for name in copied} <= set(ignored)
