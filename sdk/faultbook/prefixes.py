"""The table of log-line prefixes: one row for each form.

A row is a regular expression and nothing else: its named groups say what the form
carries. `rank` is a global rank, `local` a local rank, `task` a Slurm task; `host`, `pid`,
`device`, `level`, `stream`, `coords` (text holding `TP2 DP0`), the parts of a time (`Y M D mon h m s f z`,
`boot`, `unix`). A new form is a new row, put before the rows that would also accept it.

Every repeat is bounded and no repeat is nested in an unbounded one, so a row costs a
constant amount on any input.
"""

# ruff: noqa: E501  (a row of the table is one line)
from __future__ import annotations

import re

from . import lazy
from .values import dataclass

LEVELS = r"DEBUG|INFO|WARNING|WARN|ERROR|CRITICAL|FATAL|NOTICE|TRACE|SUCCESS"
HOST = r"[A-Za-z0-9][\w.\-]{0,63}"
HMS = r"(?P<h>\d\d):(?P<m>\d\d):(?P<s>\d\d)"
FRACTION = r"(?:[.,](?P<f>\d{1,9}))?"
ZONE = r"(?P<z>Z|[+-]\d\d:?\d\d)?"
YMD = r"(?P<Y>[12]\d{3})[-/](?P<M>\d\d)[-/](?P<D>\d\d)"
COORDS = r"(?P<coords>(?: (?:DP|TP|PP|EP|CP|SP)\d{1,4}){1,5})?"
# Words that end in a number and a colon in ordinary text; neither hosts nor torchrun roles.
NOT_A_NAME = (
    r"(?!(?:rank|step|epoch|ep|iter|iteration|layers?|block|fold|phase|stage|part|level|version|v|top|line|"
    r"shape|dim|axis|arg|param|group|expert|head|cuda|gpu|cpu|device|batch|bucket|seed|class|label|loss|file|"
    r"page|item|case|test|trial|run|exp|try|attempt|round|turn|game|episode|experiment|chapter|section|sample|q|a|"
    r"figure|table|note|python|py|torch|http|https|utf|sha|md|fp|bf|int|float|uint|bin|hex|x|y|z|f|p|k|l|"
    r"error|warning|info|debug|opt|adam|conv|fc|bn|input|output|model)[-_.]?\d)"
)

HIGHEST, LAUNCHER, WEAK = 3, 2, 1
"""Trust in a rank: torch itself > a launcher's explicit rank > a bare `[Rank N]` or a user's own form."""


@dataclass(frozen=True, slots=True)
class Prefix:
    """One form of prefix."""

    name: str
    regex: re.Pattern[str]
    heads: str
    """First characters that such a prefix can have; `a` stands for any letter, `0` for any digit."""
    clock: str = ""
    """Name of the time layout; times of different layouts are not compared."""
    trust: int = LAUNCHER
    stream: str = ""
    needs: str = ""
    """Such a line holds this text, here or further on: without it the expression need not even be compiled."""


def _row(
    name: str, heads: str, regex: str, *, clock: str = "", trust: int = LAUNCHER, stream: str = "", flags: int = 0, needs: str = ""
) -> Prefix:
    return Prefix(name, lazy.regex(regex, flags | re.ASCII), heads, clock, trust, stream, needs)


PREFIXES: tuple[Prefix, ...] = (
    # torch itself
    _row("torch-hook", "[", r"\[rank(?P<rank>\d{1,6})\]:?[ ]?", trust=HIGHEST),
    _row(
        "c10d", "[",
        rf"\[(?P<level>[IWEF])(?P<M>\d{{1,2}}?)(?P<D>\d\d) {HMS}\.(?P<f>\d{{6,9}}) {{1,9}}[\w.\-/]{{1,80}}:\d{{1,6}}\][ ]?",
        clock="glog",
    ),
    _row("c10d-old", "[", r"\[(?P<level>[IWEF]) [\w.\-/]{1,80}\.(?:cpp|cc|cu|hpp|h):\d{1,6}\][ ]?"),
    _row(
        "pg-default", "[",
        r"\[PG (?:(?:ID )?\d{1,9} )?(?:PG GUID \w{1,24})?[ ]?\(default_pg\) Rank (?P<rank>\d{1,6})\][ ]?"
        r"|\[PG (?:0|ID 0 PG GUID 0) Rank (?P<rank2>\d{1,6})\][ ]?",
        trust=WEAK,
    ),
    _row("pg-group", "[", r"\[PG [^\]\n]{1,80}? Rank (?P<group>\d{1,6})\][ ]?"),
    _row(
        "glog", "VIWEFC",
        rf"(?P<level>[VIWEFC])(?P<M>\d\d)(?P<D>\d\d) {HMS}\.(?P<f>\d{{6,9}})[ ]{{1,9}}(?P<pid>\d{{1,20}})[ ]{{1,4}}"
        r"[\w.\-/\\<>]{1,200}:\d{1,6}\][ ]?",
        clock="glog",
    ),
    # the launchers' own words
    _row("tee", "[", rf"\[{NOT_A_NAME}[A-Za-z_][A-Za-z_\-]{{0,30}}(?P<local>\d{{1,4}})(?:\|\d{{1,6}})?\]:[ ]?"),
    _row("nemo-run", "a", r"[A-Za-z][\w.\-]{0,60}/\d{1,5} (?=\[)", needs="/"),
    _row("openmpi", "[", r"\[\d{1,9},(?P<rank>\d{1,6})\]<(?P<stream>stdout|stderr|stddiag)>:[ ]?"),
    _row("determined", "[", r"\[rank=(?P<rank>\d{1,6})\][ ]?(?:\|\|)?[ ]?"),
    _row("container", "0a", r"[0-9a-f]{8,12} (?=\[rank=|\|\|)"),
    _row("bars", "|", r"\|\|[ ]"),
    _row("composer", "r", r"rank(?P<rank>\d{1,6})\[(?P<pid>\d{1,9})\]\[[\w\-]{1,40}\]:[ ]?"),
    _row("user-rank", "[", r"\[(?:(?:global|node|world)[ _])?rank[ _:=]{0,2}(?P<rank>\d{1,6})(?:/\d{1,6})?\]:?[ ]?",
         trust=WEAK, flags=re.IGNORECASE),
    _row("user-gpu", "[", r"\[(?:gpu|cuda)[ _:=]{0,2}(?P<device>\d{1,3})\]:?[ ]?", flags=re.IGNORECASE),
    _row("user-local-rank", "[", r"\[local[ _]rank[ _:=]{0,2}(?P<local>\d{1,3})\]:?[ ]?", flags=re.IGNORECASE),
    _row("user-pid", "[", r"\[(?P<pid>\d{3,8})\][ ](?=\[)"),
    _row("srun", "0", r"(?P<task>\d{1,5}): (?!\s{0,3}-?\d{1,9}\.\d{1,9},)"),
    _row("slurmstepd", "s", rf"slurmstepd(?:-(?P<host>{HOST}))?: ", stream="scheduler", needs="slurmstepd"),
    _row("accelerate", "s", r"(?P<stream>stdout|stderr): ", needs=": "),
    _row("cri", "s", r"(?P<stream>stdout|stderr) [FP] "),
    _row("stream", "[", r"\[(?P<stream>stdout|stderr)\][ ]?"),
    _row("stream-file", "a", r"(?P<file>[\w.\-]{1,100}) (?=\[(?:stdout|stderr)\])", needs=" [std"),
    # Ray, vLLM, SGLang
    _row(
        "ray", "(",
        r"\((?P<name>[A-Za-z_][^=\n]{0,80}?) pid=(?P<pid>\d{1,9})(?:, ip=(?P<host>[0-9A-Za-z.:\-]{3,45}))?\)[ ]?",
    ),
    _row("ray-pid", "(", r"\(pid=(?P<pid>\d{1,9})(?:, ip=(?P<host>[0-9A-Za-z.:\-]{3,45}))?\)[ ]?"),
    _row("ray-daemon", "(", r"\((?:raylet|gcs_server|autoscaler[^)\n]{0,24})(?:, ip=(?P<host>[0-9A-Za-z.:\-]{3,45}))?\)[ ]?"),
    _row("vllm", "DIWECFNTS", rf"(?P<level>{LEVELS}) (?P<M>\d\d)-(?P<D>\d\d) {HMS}{FRACTION} \[[^\]\n]{{1,80}}\][ ]?", clock="month-day"),
    # times
    _row("time-bracket", "[", rf"\[{YMD}[ T_]{HMS}{FRACTION}{ZONE}{COORDS}\]:?[ ]?", clock="local"),
    _row("time", "0", rf"{YMD}[ T_]{HMS}{FRACTION}[ ]?{ZONE}(?!\d)[:,]?[ \t]{{0,3}}", clock="local"),
    _row("time-us", "0[", rf"\[?(?P<M>\d\d)/(?P<D>\d\d)/(?P<Y>[12]\d{{3}})[ T]{HMS}{FRACTION}\]?[:,]?[ ]{{0,3}}", clock="local"),
    _row("time-detectron2", "[", rf"\[(?P<M>\d\d)/(?P<D>\d\d) {HMS} (?:[\w.]{{1,80}})?\]:?[ ]?", clock="month-day"),
    _row("time-month-day", "0", rf"(?P<M>\d\d)-(?P<D>\d\d) {HMS}{FRACTION} ", clock="month-day"),
    _row("time-dmesg-T", "[", rf"\[[A-Z][a-z]{{2}} (?P<mon>[A-Z][a-z]{{2}}) {{1,2}}(?P<D>\d{{1,2}}) {HMS} (?P<Y>\d{{4}})\][ ]?",
         clock="local", stream="kernel"),
    _row("ucx", "[", rf"\[(?P<unix>\d{{10}}\.\d{{1,9}})\] \[(?P<host>{HOST}):(?P<pid>\d{{1,9}}) {{0,3}}:\d{{1,4}}\][ ]{{0,3}}",
         clock="unix"),
    _row("dmesg", "[", r"\[[ ]{0,8}(?P<boot>\d{1,9}\.\d{6})\][ ]?", clock="boot", stream="kernel"),
    _row("journald", "JFMASOND", rf"(?P<mon>Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sep|Oct|Nov|Dec) {{1,2}}(?P<D>\d{{1,2}}) {HMS}{FRACTION} "
         rf"(?P<host>{HOST}) (?=[\w.\-@/()]{{1,64}}(?:\[\d{{1,9}}\])?: )", clock="syslog"),
    _row("kernel", "k", r"kernel: ", stream="kernel"),
    _row("talos", "a", rf"(?:(?P<host>{HOST}): )?kern: +\w{{3,10}}: ", stream="kernel", needs="kern: "),
    _row("unit", "a", r"[A-Za-z][\w.\-@/]{0,63}\[\d{1,9}\]: ", needs="]: "),
    _row("syslog-iso", "a", rf"(?P<host>{HOST}) (?=(?:kernel|systemd|slurmd|slurmstepd|dockerd|containerd|kubelet)(?:\[\d{{1,9}}\])?: )", needs=": "),
    # NCCL, Open MPI, UCX
    _row("nccl", "a0", rf"(?P<host>{HOST}):(?P<pid>\d{{1,9}})(?::\d{{1,20}})? \[(?P<device>\d{{1,3}})\] (?=[^\n]{{0,120}}?NCCL)", needs="NCCL",
         stream="nccl"),
    _row("location", "[", r"\[[\w./\-]{1,120}\.py:\d{1,6}(?::[\w<>]{1,64})?\][ ]?"),
    _row("mpi-host", "[", rf"\[(?![\w.\-]{{1,64}}\.(?:py|cpp|cc|cu|c|h|rs|go):)(?P<host>{HOST}):(?P<pid>\d{{2,9}})(?: {{0,3}}:\d{{1,9}}){{0,2}}\][ ]{{1,3}}"),
    # containers
    _row("kubectl", "[", rf"\[pod/(?P<host>{HOST})/{HOST}\][ ]?"),
    _row("compose", "a", r"[a-z][\w.\-]{0,40}-\d{1,4} {1,12}\| ", needs="| "),
    # levels and logger names, once something stands before or a known separator follows
    _row("loguru", "|", rf"\| (?P<level>{LEVELS}) {{0,9}}\| [\w.:<>\-]{{1,120}} - "),
    _row("olmo", "a0", rf"(?P<host>{HOST}):(?P<local>\d{{1,3}})\t[\w.]{{1,80}}:\d{{1,6}}\t(?P<level>{LEVELS})\t", needs="\t"),
    _row("level-bracket", "[", rf"\[(?P<level>{LEVELS})\][ ]{{0,4}}"),
    _row("python-basic", "DIWECFNTS", rf"(?P<level>{LEVELS}):[A-Za-z_][\w.]{{0,100}}:"),
    _row("tf-cc", "VIWEF", r"(?P<level>[VIWEF]) [\w./\-]{1,160}\.(?:cc|h|cpp|cu):\d{1,6}\][ ]?"),
    _row("logger-level", "a", rf"[A-Za-z_][\w.]{{2,100}}: \[(?P<level>{LEVELS})\] ", needs=": ["),
    _row("dash-level", "-", rf"- (?:[\w.\[\] ]{{1,80}}? - )?(?P<level>{LEVELS}) {{0,9}}[-:] "),
    _row("level", "DIWECFNTS", rf"(?P<level>{LEVELS}) {{0,6}}(?:: |- |\| )"),
    # last, since ordinary words could look like it
    _row("pdsh", "a0", rf"{NOT_A_NAME}(?P<host>(?:[a-z][a-z0-9]{{0,30}}(?:-[a-z0-9]{{1,30}}){{0,6}}-?\d{{1,6}})"
         r"|(?:\d{1,3}\.){3}\d{1,3}): (?=\S| )"),
)


@dataclass(frozen=True, slots=True)
class Fact:
    """What the text of a message says about the process it is about; nothing is cut off."""

    name: str
    needle: str
    """A literal that every such text holds: searched first, since most lines hold none."""
    regex: re.Pattern[str]
    trust: int = LAUNCHER
    stream: str = ""


def _fact(name: str, needle: str, regex: str, *, trust: int = LAUNCHER, stream: str = "") -> Fact:
    return Fact(name, needle, lazy.regex(regex, re.ASCII), trust, stream)


FACTS: tuple[Fact, ...] = (
    _fact("agent-verdict", "local_rank: ", r"\(exitcode: {1,4}-?\d{1,4}\) {1,4}local_rank: (?P<local>\d{1,4}) \(pid: (?P<pid>\d{1,9})\)"),
    _fact("summary-rank", "(local_rank: ", r"^\s{0,8}rank {1,12}: (?P<rank>\d{1,6}) \(local_rank: (?P<local>\d{1,4})\)"),
    _fact("summary-pid", "exitcode ", r"^\s{0,8}exitcode {1,8}: -?\d{1,4} \(pid: (?P<pid>\d{1,9})\)"),
    _fact("summary-host", "host ", r"^\s{0,8}host {1,12}: (?P<host>[\w.\-]{1,200})"),
    _fact("composer-crash", " crashed with exit code", r"^\s{0,4}(?:Global )?[Rr]ank (?P<rank>\d{1,6}) crashed with exit code"),
    _fact("deepspeed-exit", "exits with return code", r"--local_rank[= '\",]{1,5}(?P<local>\d{1,4})"),
    _fact("mpirun", "mpirun noticed that process rank ",
          r"process rank (?P<rank>\d{1,6}) with PID (?P<pid>\d{1,9}) on node (?P<host>[\w.\-]{1,64})"),
    _fact("mpi-name", "Process name: [[", r"Process name: \[\[\d{1,9},\d{1,9}\],(?P<rank>\d{1,6})\]"),
    _fact("srun-task", "task", r"srun: error: (?P<host>[\w.\-]{1,64}): tasks? (?P<task>\d{1,6}): ", stream="scheduler"),
    _fact("srun-tasks", "srun: ", r"srun: error: (?P<host>[\w.\-]{1,64}): tasks? [\d,\- ]{1,400}: ", stream="scheduler"),
    _fact("slurm-step", "*** STEP ", r"\*\*\* STEP \S{1,40} ON (?P<host>[\w.\-]{1,64}) CANCELLED", stream="scheduler"),
    _fact("slurm-job", "*** JOB ", r"\*\*\* JOB \S{1,40} ON (?P<host>[\w.\-]{1,64}) CANCELLED", stream="scheduler"),
    _fact("megatron-nan", ": found NaN in", r"[Rr]ank (?P<rank>\d{1,6}): found NaN in"),
    _fact("megatron-result", "Unexpected result", r"Rank (?P<rank>\d{1,6}), node (?P<host>[\w.\-]{1,64}), device (?P<device>\d{1,3}),"),
    _fact("megatron-device", "Device: ", r"Device: (?P<device>\d{1,3}), node: (?P<host>[\w.\-]{1,64})"),
    _fact("lightning-global", "GLOBAL_RANK: ", r"GLOBAL_RANK: (?P<rank>\d{1,6}), MEMBER: \d"),
    _fact("lightning-local", "LOCAL_RANK: ", r"^\s{0,4}LOCAL_RANK: (?P<local>\d{1,3}) - CUDA_VISIBLE_DEVICES"),
    _fact("fairseq-init", "distributed init (rank ", r"distributed init \(rank (?P<rank>\d{1,6})\)"),
    _fact("composer-init", "global_rank=", r"torch\.dist: global_rank=(?P<rank>\d{1,6}), local_rank=(?P<local>\d{1,4})"),
    _fact("jax-task", "/task:", r"/job:(?:\w{0,24}worker|jax\w{0,24})/replica:\d{1,6}/task:(?P<process>\d{1,6})(?!/device)"),
    _fact("xid", "NVRM: Xid", r"NVRM: Xid \(PCI:[0-9A-Fa-f:.]{4,16}\): \d{1,4}, pid='?(?P<pid>\d{1,9})", stream="kernel"),
    _fact("oom-kill", "Killed process ", r"Killed process (?P<pid>\d{1,9}) \(", stream="kernel"),
    *(
        _fact(
            f"pod-table-{state}", state,
            rf"^\s{{0,4}}(?P<host>[a-z0-9][a-z0-9.\-]{{0,62}})\s{{1,20}}\d{{1,2}}/\d{{1,2}}\s{{1,20}}{state}\b", stream="scheduler",
        )
        for state in ("Evicted", "OOMKilled", "CrashLoopBackOff")
    ),
    _fact("pod", "pod/", r"\bpod/(?P<host>[a-z0-9][a-z0-9.\-]{0,62})\b", stream="scheduler"),
)
