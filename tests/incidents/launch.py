"""Runs one incident, by the reproduction runner or by torchrun, and lays its output out as somebody would find it."""

from __future__ import annotations

import datetime
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO

from cases import Incident
from truth import RankEnd, facts

from faultbook_repro.core.masking import mask
from faultbook_repro.core.runner import Runner
from faultbook_repro.core.spec import make_spec

HERE = Path(__file__).resolve().parent
_SIGNAL_WORDS = {-2: "Interrupt", -6: "Aborted", -7: "Bus error", -9: "Killed", -11: "Segmentation fault", -15: "Terminated"}
Files = dict[str, str]


@dataclass
class Run:
    """What one run left."""

    files: Files
    attempts: list[dict[int, RankEnd]]
    simulated: list[str] = field(default_factory=list)


def by_runner(incident: Incident, runner: Runner, scratch: Path) -> Run:
    settings = {
        "world_size": incident.world,
        "collective_timeout_s": float(incident.case()["timeout"]),
        "timeout_s": 60.0,
        "flight_recorder": incident.dumps,
    }
    spec = make_spec(HERE / "train.py", "train", settings)
    outcome = runner.run(spec, guilty=incident.guilty, constants={"CASE": incident.case()}, keep=scratch)
    ends = {}
    status: dict[int, int] = {}
    for r in outcome.ranks:
        status[r.rank] = -signal.Signals[r.signal] if r.signal in signal.Signals.__members__ else int(r.exit_code or 0)
        ends[r.rank] = facts([r.results], str(status[r.rank]))
    rows = []
    for line in outcome.log.splitlines():
        match = re.match(r"\[rank(\d+)\]: (.*)", line)
        if match:
            rows.append((int(match[1]), _plain(match[2])))
    simulated: list[str] = []
    if incident.layout in ("files", "tasks"):
        name = "rank_{}.log" if incident.layout == "files" else "slurm-4711_{}.out"
        files = {name.format(r.rank): _plain(r.log) for r in outcome.ranks}
        if incident.drop == "guilty":
            del files[name.format(incident.guilty)]
        if incident.drop == "cut":
            files = {n: t[: int(len(t) * 0.55)] for n, t in files.items()}
    elif incident.layout == "srun":
        width = len(str(incident.world - 1))
        lines = [f"{r:>{width}}: {text}" for r, text in rows]
        for r in sorted(outcome.ranks, key=lambda r: r.seconds):
            code = status[r.rank]
            if code:
                how = _SIGNAL_WORDS.get(code, f"Exited with exit code {code}")
                lines.append(f"srun: error: node-0: task {r.rank}: {how}")
                simulated = ["srun epilogue"]
        files = {"slurm-4711.out": "\n".join(lines) + "\n"}
    elif incident.layout == "mpirun":
        files = {"mpi.log": "".join(f"[1,{r}]<stderr>:{text}\n" for r, text in rows)}
    else:
        files = {"train.log": "".join(f"{text}\n" for _, text in rows)}
    if incident.dumps:
        for path in sorted((scratch / "fr").glob("*.json")):
            files[f"fr/{path.name}"] = json.dumps(json.loads(path.read_text()), separators=(",", ":"))
    return Run(files, [ends], simulated)


def _plain(text: str) -> str:
    return re.sub(r"\btmp_\d+/", "/app/data/", text.replace('"repro.py"', '"/app/train.py"'))


def by_torchrun(incident: Incident, scratch: Path) -> Run:
    for name in ("truth", "data", "fr", "logs"):
        (scratch / name).mkdir(parents=True, exist_ok=True)
    shutil.copyfile(HERE / "train.py", scratch / "train.py")
    holder = socket.socket()
    holder.bind(("127.0.0.1", 0))
    port = holder.getsockname()[1]
    if incident.kind == "port-in-use":
        holder.listen()
    else:
        holder.close()
    agents = [_agent(incident, scratch, node, port) for node in range(incident.nodes)]
    merged: list[str] = []
    readers = [threading.Thread(target=_read, args=(a, n, scratch, merged)) for n, a in enumerate(agents)]
    for reader in readers:
        reader.start()
    simulated = _stop(incident, scratch, agents) if incident.stop else []
    for agent in agents:
        try:
            agent.wait(timeout=120)
        except subprocess.TimeoutExpired:
            os.killpg(agent.pid, signal.SIGKILL)
    for reader in readers:
        reader.join()
    holder.close()
    files: Files = {}
    for node in range(incident.nodes):
        folder = "" if incident.nodes == 1 else f"node-{node}/"
        if incident.layout != "merged-nodes":
            files[f"{folder}torchrun.log"] = _masked((scratch / f"agent_{node}.log").read_text("utf-8", "replace"), scratch, node)
        for path in sorted((scratch / "logs" / str(node)).rglob("*")):
            kept = ("error.json",) if incident.layout == "tee" else ("stdout.log", "stderr.log", "error.json")
            where = re.search(r"attempt_\d+/\d+/[^/]+$", str(path))
            if where and path.name in kept and path.stat().st_size:
                files[folder + where[0]] = _masked(path.read_text("utf-8", "replace"), scratch, node)
    if incident.layout == "merged-nodes":
        files["job.log"] = "".join(merged)
    for path in sorted((scratch / "fr").glob("*.json")):
        files[f"fr/{path.name}"] = json.dumps(json.loads(path.read_text()), separators=(",", ":"))
    attempts = _notes(scratch / "truth")
    if incident.case().get("kernel"):
        pid = next(e["pid"] for e in _lines(scratch / "truth" / f"rank_{incident.guilty}.jsonl") if "pid" in e)
        files["dmesg.txt"] = _KERNEL.format(pid=pid)
        simulated.append("kernel OOM line")
    return Run(files, attempts, simulated)


_KERNEL = (
    "[ 1843.301877] python3 invoked oom-killer: gfp_mask=0x140cca(GFP_HIGHUSER_MOVABLE|__GFP_COMP), order=0, oom_score_adj=0\n"
    "[ 1843.308145] Out of memory: Killed process {pid} (python3) total-vm:18874368kB, anon-rss:15990784kB, file-rss:2048kB,"
    " shmem-rss:0kB, UID:1000 pgtables:36864kB oom_score_adj:0\n"
)


def _agent(incident: Incident, scratch: Path, node: int, port: int) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "torch.distributed.run", f"--nproc-per-node={incident.world // incident.nodes}"]
    command += [f"--max-restarts={incident.restarts}", "--monitor-interval=0.1"]
    # A restart at a static address finds the dead attempt's keys in the store; the c10d rendezvous does not.
    command += ["--standalone"] if incident.restarts else ["--master-addr=127.0.0.1", f"--master-port={port}"]
    if incident.nodes > 1:
        command += [f"--nnodes={incident.nodes}", f"--node-rank={node}", "--local-addr=127.0.0.1"]
    if incident.layout in ("tee", "redirect", "merged-nodes"):
        way = "--redirects" if incident.layout == "redirect" else "--tee"
        command += ["--log-dir", str(scratch / "logs" / str(node)), way, "3"]
    environment = {
        **{k: v for k, v in os.environ.items() if not k.startswith(("RANK", "WORLD", "MASTER", "TORCH"))},
        "INCIDENT_CASE": json.dumps(incident.case()),
        "INCIDENT_TRUTH": str(scratch / "truth"),
        "INCIDENT_DATA": str(scratch / "data"),
        "INCIDENT_HOST": f"node-{node}",
        "OMP_NUM_THREADS": "1",
        "PYTHONNODEBUGRANGES": "1",  # no lines of carets: smaller files
        "GLOO_SOCKET_IFNAME": "lo",
    }
    if incident.dumps:
        environment |= {"TORCH_FR_BUFFER_SIZE": "200", "INCIDENT_FR": str(scratch / "fr")}
    if incident.detail:
        environment["TORCH_DISTRIBUTED_DEBUG"] = "DETAIL"
    return subprocess.Popen(
        [*command, str(scratch / "train.py")],
        env=environment,
        cwd=scratch,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        start_new_session=True,
    )


def _read(agent: subprocess.Popen[bytes], node: int, scratch: Path, merged: list[str]) -> None:
    """One agent's lines into its file, and into the log of both nodes as they come."""
    stream: BinaryIO = agent.stdout  # type: ignore[assignment]
    with open(scratch / f"agent_{node}.log", "ab", buffering=0) as out:
        for line in stream:
            out.write(line)
            merged.append(f"node-{node}: " + _masked(line.decode("utf-8", "replace"), scratch, node))


def _stop(incident: Incident, scratch: Path, agents: list[subprocess.Popen[bytes]]) -> list[str]:
    """Sends the signal: a while after all ranks have started, or long after the fault where the job is to hang."""
    key = "fired" if incident.kind == "hang" else "started"
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline:
        notes = {p.stem for p in (scratch / "truth").glob("*.jsonl") if any(key in fact for fact in _lines(p))}
        if len(notes) >= (1 if key == "fired" else incident.world):
            break
        time.sleep(0.2)
    time.sleep(25 if incident.kind == "hang" else 3)
    if incident.stop.startswith("slurm:"):
        now = datetime.datetime.now().isoformat(timespec="seconds")
        with open(scratch / "agent_0.log", "a", encoding="utf-8") as out:
            out.write(f"slurmstepd: error: *** STEP 4711.0 ON node-0 CANCELLED AT {now} DUE TO {incident.stop[6:]} ***\n")
        agents[0].send_signal(signal.SIGTERM)
        return ["scheduler line"]
    if incident.stop == "SIGINT":
        os.killpg(agents[0].pid, signal.SIGINT)  # a terminal sends it to the whole foreground group
        time.sleep(0.1)
    else:
        agents[0].send_signal(signal.Signals[incident.stop])
    return []


def _lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def _notes(folder: Path) -> list[dict[int, RankEnd]]:
    by_attempt: dict[int, dict[int, list[dict[str, Any]]]] = {}
    for path in folder.glob("rank_*.jsonl"):
        for fact in _lines(path):
            by_attempt.setdefault(fact["attempt"], {}).setdefault(int(path.stem[5:]), []).append(fact)
    return [{r: facts(own) for r, own in ranks.items()} for _, ranks in sorted(by_attempt.items())]


def _masked(text: str, scratch: Path, node: int) -> str:
    text = text.replace(str(scratch), "/app").replace(sys.executable, "python3")
    text = re.sub(rf"\b{re.escape(socket.gethostname())}\b|(?<=host      : )\S+", f"node-{node}", text)
    return mask(text)
