"""Other people's code runs as nobody, isolated, or not at all; and never writes where its names lead."""

from __future__ import annotations

import importlib.util
import os
import socket
import sys
import tempfile
from pathlib import Path

import pytest
from entries import write_entry, write_kb

from faultbook_repro import isolation
from faultbook_repro.commands import verify
from faultbook_repro.core.spec import SpecError
from faultbook_repro.isolation import Refused, held
from faultbook_repro.proofs import write_proof
from faultbook_repro.reachable import covered
from faultbook_repro.untrusted_entry import load_entry

needs_torch = pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="needs torch")


@pytest.fixture
def kb(tmp_path: Path) -> Path:
    return write_kb(tmp_path / "kb", "exploding-weight")


def possible() -> None:
    if reason := isolation.lacking():
        pytest.skip(f"this machine cannot isolate: {reason}")


def test_with_trust_it_is_a_plain_call() -> None:
    assert held(lambda keep: (os.getpid(), keep), trust=True, keep=Path("x")) == (os.getpid(), Path("x"))


@needs_torch
def test_where_isolation_is_not_possible_nothing_runs(
    kb: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    ran = tmp_path / "ran"
    repro = kb / "model" / "exploding-weight" / "repro.py"
    repro.write_text(f"open({str(ran)!r}, 'w')\n" + repro.read_text())
    monkeypatch.setattr(isolation, "lacking", lambda: "network: open: unshare: Operation not permitted")
    assert verify(["--all", "--kb", str(kb)]) == 2
    told = capfd.readouterr().err
    assert told.count("\n") == 1 and "unshare: Operation not permitted" in told and "--trust" in told
    assert not ran.exists() and not (tmp_path / "proofs").exists()


def test_what_is_missing_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(isolation, "_PROBE", "print('{\"network\": \"open: not here\"}')")
    assert isolation.lacking() == "network: open: not here"
    monkeypatch.setattr(isolation, "_PROBE", "raise SystemExit(1)")
    assert "could not be tried" in (isolation.lacking() or "")


root = pytest.mark.skipif(not sys.platform.startswith("linux") or os.geteuid() != 0, reason="only root has rights to give up")


@root
def test_root_gives_up_its_rights_for_good(tmp_path: Path) -> None:
    possible()
    secret = tmp_path / "secret"
    secret.write_text("s3cret")
    secret.chmod(0o600)

    def look(keep: Path | None) -> dict[str, object]:
        assert keep is not None
        (keep / "left").write_text("behind")
        seen: dict[str, object] = {"ids": {*os.getresuid(), *os.getresgid()}, "groups": os.getgroups()}
        seen["readable"] = os.access(secret, os.R_OK)
        try:
            os.setuid(0)
            seen["back"] = True
        except PermissionError:
            seen["back"] = False
        seen["home"] = sorted(os.listdir(Path.home())) if os.access(Path.home(), os.R_OK) else []
        return seen

    seen = held(look, keep=tmp_path / "kept")
    assert 0 not in seen["ids"] and seen["groups"] == []  # type: ignore[operator]
    assert seen["readable"] is False and seen["back"] is False
    assert not {".ssh", ".bash_history", ".config"} & set(seen["home"])  # type: ignore[call-overload]
    assert os.geteuid() == 0, "the caller still has its own"
    assert (tmp_path / "kept" / "left").read_text() == "behind" and (tmp_path / "kept").stat().st_uid == 0


@root
def test_errors_come_back_as_they_are() -> None:
    possible()

    def fail(keep: Path | None) -> None:
        raise SpecError("no such entry")

    with pytest.raises(SpecError, match="no such entry"):
        held(fail)
    with pytest.raises(Refused):
        held(lambda keep: (_ for _ in ()).throw(Refused("x")))


def test_only_what_is_needed_of_a_covered_folder_is_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    with tempfile.TemporaryDirectory() as place:  # pytest's own folder is closed to others
        top = Path(place).resolve()
        top.chmod(0o755)
        python, home, closed = top / "home" / "pyenv" / "versions" / "3", top / "home", top / "closed"
        for folder in (python, home / "kb" / "entry", closed / "inner" / "tools"):
            folder.mkdir(parents=True)
        monkeypatch.setenv("HOME", str(home))
        closed.chmod(0o700)
        found = covered([python, python / "lib", home / "kb" / "entry", closed / "inner" / "tools", top, top / "no-such"])
        assert found[home] == [home / "kb" / "entry", python], "not their neighbours, and nothing twice"
        assert found[closed] == [closed / "inner" / "tools"]
        assert found.get(Path("/run")) == [] and set(found) <= {home, closed, Path("/run"), Path("/var/run")}


def test_a_run_can_talk_to_no_socket_of_the_machine() -> None:
    possible()
    with tempfile.TemporaryDirectory() as place, socket.socket(socket.AF_UNIX) as server:
        Path(place).chmod(0o755)
        path = f"{place}/agent"
        server.bind(path)
        server.listen()
        os.chmod(path, 0o777)

        def connect(keep: Path | None) -> str:
            with socket.socket(socket.AF_UNIX) as client:
                try:
                    client.connect(path)
                except OSError as error:
                    return type(error).__name__
            return "connected"

        assert connect(None) == "connected", "from outside it is there"
        assert held(connect) == "ConnectionRefusedError"
        assert held(lambda keep: os.listdir("/run")) == []


@needs_torch
@pytest.mark.parametrize("name", ["logs/broken.log", "logs", "repro.py", "entry.yaml"])
def test_a_link_in_an_entry_is_not_followed(name: str, kb: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = kb / "model" / "exploding-weight"
    target = tmp_path / "precious"
    if name == "logs":
        target.mkdir()
    else:
        (folder / name).parent.mkdir(exist_ok=True)
        target.write_text((folder / name).read_text() if (folder / name).exists() else "precious")
    before = target.read_text() if target.is_file() else ""
    (folder / name).unlink(missing_ok=True)
    (folder / name).symlink_to(target)
    assert verify(["exploding-weight", "--record", "--trust", "--kb", str(kb)]) == 1
    assert f"{name.split('/')[-1]!r} is a link; entries hold plain files only" in capsys.readouterr().out
    assert (target.read_text() if target.is_file() else "") == before
    assert not target.is_dir() or not any(target.iterdir())


HARMFUL = {
    "yaml bomb": ("entry.yaml", b"a: &a [x]\n" + b"".join(b"k%d: [%s]\n" % (n, b",".join([b"*a"] * 50)) for n in range(50))),
    "deep yaml": ("entry.yaml", b"x: " + b"[" * 100_000),
    "python object": ("entry.yaml", b"!!python/object/apply:os.system ['true']\n"),
    "binary yaml": ("entry.yaml", b"\xff\x00"),
    "deep python": ("repro.py", b"(" * 60_000),
    "null bytes": ("repro.py", b"x = 1\x00"),
    "binary python": ("repro.py", b"\xff\xfe"),
    "huge python": ("repro.py", b"#" * 100_000),
    "pipe": ("repro.py", None),
    "pipe among the logs": ("logs/recorded-1.log", None),
    "huge log": ("logs/recorded-1.log", b"x" * 300_000),
}


@pytest.mark.parametrize("name", HARMFUL)
def test_files_that_would_blow_up_are_one_line(name: str, kb: Path) -> None:
    folder = kb / "model" / "exploding-weight"
    file, content = HARMFUL[name]
    (folder / "logs").mkdir(exist_ok=True)
    if content is None:
        (folder / file).unlink(missing_ok=True)
        os.mkfifo(folder / file)
    else:
        (folder / file).write_bytes(content)
    with pytest.raises(SpecError) as caught:
        load_entry(folder)
    assert str(caught.value).count("\n") == 0 and len(str(caught.value)) < 400


@pytest.mark.parametrize("variants", ['("", "x/../../../../out")', '("", "..")', '("", "a b")'])
def test_a_variant_is_a_word(variants: str, kb: Path) -> None:
    folder = write_entry(kb / "model" / "two", repro=(("STEPS = 12", f"STEPS = 12\nVARIANTS = {variants}"),))
    with pytest.raises(SpecError, match="no name for a variant"):
        load_entry(folder)


def test_a_slug_leads_nowhere_else(kb: Path) -> None:
    folder = write_entry(kb / "model" / "two", entry=(("slug: two", "slug: ../../two"),))
    with pytest.raises(SpecError, match="the same word"):
        load_entry(folder)


def test_a_proof_record_is_not_written_through_a_link(tmp_path: Path) -> None:
    precious = tmp_path / "precious"
    precious.write_text("precious")
    (tmp_path / "one.cpu.json").symlink_to(precious)
    write_proof(tmp_path, {"slug": "one", "device": "cpu"})
    assert precious.read_text() == "precious" and "one" in (tmp_path / "one.cpu.json").read_text()
