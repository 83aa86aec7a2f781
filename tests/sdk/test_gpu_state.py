"""nvidia-smi beside the logs: what is wrong with a GPU is named, and a healthy report says nothing."""

# ruff: noqa: E501 - reports are quoted as wide as they are

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from faultbook import diagnose, gpu_state
from faultbook.model import Source
from faultbook.sources import discover

REPORT = """
==============NVSMI LOG==============

Timestamp                                 : Mon Nov 30 17:51:27 2026
Driver Version                            : 570.86.15
CUDA Version                              : 12.8

Attached GPUs                             : 2
GPU 00000000:10:1C.0
    Product Name                          : NVIDIA H100 80GB HBM3
    MIG Mode
        Current                           : Disabled
        Pending                           : Disabled
    GPU Reset Status
        Reset Required                    : Requested functionality has been deprecated
        Drain and Reset Recommended       : Requested functionality has been deprecated
    GPU Recovery Action                   : None
    Performance State                     : P0
    Clocks Event Reasons
        Idle                              : Not Active
        Applications Clocks Setting       : Not Active
        SW Power Cap                      : Active
        HW Slowdown                       : Not Active
            HW Thermal Slowdown           : Not Active
            HW Power Brake Slowdown       : Not Active
        Sync Boost                        : Not Active
        SW Thermal Slowdown               : Not Active
    Clocks Event Reasons Counters
        SW Power Capping                  : 3737587 us
        HW Thermal Slowdown               : 12 us
    FB Memory Usage
        Total                             : 81559 MiB
        Used                              : 70211 MiB
    ECC Mode
        Current                           : Enabled
        Pending                           : Enabled
    ECC Errors
        Volatile
            SRAM Correctable              : 0
            SRAM Uncorrectable Parity     : 0
            SRAM Uncorrectable SEC-DED    : 0
            DRAM Correctable              : 177
            DRAM Uncorrectable            : 0
        Aggregate
            SRAM Correctable              : 0
            SRAM Uncorrectable Parity     : 0
            SRAM Uncorrectable SEC-DED    : 0
            DRAM Correctable              : 177
            DRAM Uncorrectable            : 4
            SRAM Threshold Exceeded       : No
        Aggregate Uncorrectable SRAM Sources
            SRAM L2                       : 0
    Retired Pages
        Single Bit ECC                    : N/A
        Double Bit ECC                    : N/A
        Pending Page Blacklist            : N/A
    Remapped Rows
        Correctable Error                 : 1
        Uncorrectable Error               : 2
        Pending                           : No
        Remapping Failure Occurred        : No
        Bank Remap Availability Histogram
            Max                           : 639 bank(s)
            None                          : 0 bank(s)
    Temperature
        GPU Current Temp                  : 64 C
    Fabric
        Status                            : N/A
    Processes
        GPU instance ID                   : N/A
        Compute instance ID               : N/A
        Process ID                        : 4288
            Type                          : C
            Name                          : /usr/bin/python3
            Used GPU Memory               : 70200 MiB

GPU 00000000:20:1C.0
    Product Name                          : NVIDIA H100 80GB HBM3
    ECC Errors
        Volatile
            DRAM Uncorrectable            : 0
    Processes
        Process ID                        : 4289
"""
OLD = """==============NVSMI LOG==============
Attached GPUs : 1
GPU 0000:0B:00.0
    ECC Errors
        Volatile
            Single Bit
                Device Memory    : 3
                Total            : 3
            Double Bit
                Device Memory    : 0
                Register File    : 1
                Total            : 1
        Aggregate
            Double Bit
                Total            : 7
    Retired Pages
        Double Bit ECC           : 2
        Pending                  : Yes
"""


def states(text: str) -> list[tuple[str, str, int, str]]:
    source = Source(0, "nvidia-smi.txt", "gpu")
    found = gpu_state.read(enumerate(text.split("\n"), 1), source)
    return [(str(e.detail["state"]), str(e.detail["gpu"]), int(e.detail["count"]), e.text) for e in found]


def with_(old: str, new: str) -> str:
    assert old in REPORT
    return REPORT.replace(old, new, 1)


def test_a_healthy_report_says_nothing() -> None:
    """Among what it holds: corrected errors, errors of the card's life, a power cap, counters of past slowdowns."""
    assert states(REPORT) == []


@pytest.mark.parametrize(
    ("old", "new", "state", "said"),
    [
        ("DRAM Uncorrectable            : 0", "DRAM Uncorrectable            : 3", "ecc", "Volatile: DRAM Uncorrectable: 3"),
        ("SRAM Uncorrectable SEC-DED    : 0", "SRAM Uncorrectable SEC-DED    : 1", "ecc", "Volatile: SRAM Uncorrectable SEC-DED: 1"),
        ("Pending                           : No", "Pending                           : Yes", "remap_pending", "Remapped Rows: Pending: Yes"),
        ("Failure Occurred        : No", "Failure Occurred        : Yes", "remap_failed", "Remapped Rows: Remapping Failure Occurred: Yes"),
        ("Recovery Action                   : None", "Recovery Action                   : Reset", "needs_reset", "GPU Recovery Action: Reset"),
        ("Reset Required                    : Requested functionality has been deprecated", "Reset Required : Yes", "needs_reset",
         "GPU Reset Status: Reset Required: Yes"),
        ("Pending Page Blacklist            : N/A", "Channel Repair Pending            : GPU requires reset", "needs_reset",
         "Retired Pages: Channel Repair Pending: GPU requires reset"),
        ("HW Thermal Slowdown           : Not Active", "HW Thermal Slowdown           : Active", "slowed", "HW Slowdown: HW Thermal Slowdown: Active"),
        ("GPU Current Temp                  : 64 C", "GPU Current Temp                  : Unknown Error", "unreadable",
         "Temperature: GPU Current Temp: Unknown Error"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_named_with_its_gpu(old: str, new: str, state: str, said: str) -> None:
    ((found, gpu, _, text),) = states(with_(old, new))
    assert (found, gpu, text) == (state, "00000000:10:1C.0", f"GPU 00000000:10:1C.0: {said}")


def test_uncorrectable_errors_are_added_up_and_the_layout_before_turing_is_read() -> None:
    both = with_("DRAM Uncorrectable            : 0", "DRAM Uncorrectable : 3").replace("Parity     : 0", "Parity : 2", 1)
    assert [(s, n) for s, _, n, _ in states(both)] == [("ecc", 5)]
    assert [(s, gpu, n) for s, gpu, n, _ in states(OLD)] == [("ecc", "0000:0B:00.0", 1), ("remap_pending", "0000:0B:00.0", 0)]


@pytest.mark.parametrize(
    "line",
    [
        "Unable to determine the device handle for GPU 0000:0B:00.0: Unknown Error",
        "Unable to determine the device handle for GPU0000:0B:00.0: GPU is lost.  Reboot the system to recover this GPU",
        "Unable to determine the device handle for gpu 0000:0B:00.0: GPU is lost.",
    ],
)
def test_a_gpu_that_is_gone(line: str) -> None:
    assert [(s, gpu) for s, gpu, *_ in states(line)] == [("lost", "0000:0B:00.0")]


@pytest.mark.parametrize(
    "line",
    [
        "NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver. Make sure that the latest NVIDIA driver is installed and running.",
        "Failed to initialize NVML: Driver/library version mismatch",
        "No devices were found",
    ],
)
def test_a_driver_that_is_not_there_is_a_lead(line: str, tmp_path: Path) -> None:
    assert [s for s, *_ in states(line)] == ["no_driver"]
    answer = diagnose(job(tmp_path, line + "\n"))
    assert any(line[:40] in lead["text"] and lead["file"] == "nvidia-smi.txt" for lead in answer.leads)


def test_the_table_shows_a_gpu_that_does_not_answer() -> None:
    table = (
        "+-----------------------------------------------------------------------------+\n"
        "| NVIDIA-SMI 535.104.05   Driver Version: 535.104.05    CUDA Version: 12.2     |\n"
        "| GPU  Name        Persistence-M| Bus-Id        Disp.A | Volatile Uncorr. ECC |\n"
        "|   0  NVIDIA A100-SXM...  On   | 00000000:07:00.0 Off |                    0 |\n"
        "| N/A   30C    P0    52W / 400W |      0MiB / 40960MiB |      0%      Default |\n"
        "|   1  NVIDIA A100-SXM...  On   | 00000000:0B:00.0 Off |                 ERR! |\n"
        "|ERR!  ERR! ERR!    ERR! / ERR! |      0MiB / 40960MiB |    ERR!      Default |\n"
    )
    assert [(s, gpu) for s, gpu, *_ in states(table)] == [("unreadable", "00000000:0B:00.0")]


@settings(max_examples=200, deadline=None)
@given(st.text(max_size=400), st.integers(0, len(REPORT) - 1))
def test_no_report_raises(text: str, at: int) -> None:
    states(text)
    states(REPORT[:at] + text + REPORT[at:])


def test_numbers_and_nesting_of_any_size_are_survived() -> None:
    assert states("GPU 00000000:10:1C.0\n    ECC Errors\n        Volatile\n            DRAM Uncorrectable : " + "9" * 5000)
    assert states("\n".join(" " * n + f"K{n} : Yes" for n in range(3000)) + "\n" + "a b " * 20000) == []


# --- beside logs ---

WAITING = (
    "[rank{r}]: world_size=2 rank={r} local_rank={r} pid={pid}\n[rank{r}]: step=7 loss=2.1\n"
    "[rank{r}]:[E1130 15:40:01.1 ProcessGroupNCCL.cpp:616] [Rank {r}] Watchdog caught collective operation timeout: "
    "WorkNCCL(SeqNum=96, OpType=ALLREDUCE, NumelIn=1, NumelOut=1, Timeout(ms)=600000) ran for 600031 milliseconds\n"
)


def job(folder: Path, report: str) -> Path:
    for rank in (0, 1):
        (folder / f"rank_{rank}.log").write_text(WAITING.format(r=rank, pid=4288 + rank))
    (folder / "nvidia-smi.txt").write_text(report)
    return folder


def test_the_defective_gpu_decides_between_ranks_that_only_waited(tmp_path: Path) -> None:
    second = REPORT.rindex("DRAM Uncorrectable            : 0")
    answer = diagnose(job(tmp_path, REPORT[:second] + REPORT[second:].replace(": 0", ": 2", 1)))
    assert answer.initiating is not None
    assert (answer.initiating.scope, answer.initiating.rank, answer.initiating.confidence) == ("rank", 1, "medium")
    assert "GPU 00000000:20:1C.0: Volatile: DRAM Uncorrectable: 2" in answer.initiating.basis
    assert (answer.verdict, answer.diagnoses[0].entry) == ("diagnosed", "gpu-uncorrectable-ecc")
    assert [x["file"] for x in answer.leads if "DRAM Uncorrectable" in x["text"]] == ["nvidia-smi.txt"]


def test_a_healthy_report_beside_the_logs_changes_nothing(tmp_path: Path) -> None:
    with_report = diagnose(job(tmp_path, REPORT))
    (tmp_path / "nvidia-smi.txt").unlink()
    without = diagnose(tmp_path)
    assert (with_report.verdict, with_report.initiating, with_report.leads) == (without.verdict, without.initiating, without.leads)


def test_old_errors_do_not_overrule_a_ranks_own_fault(tmp_path: Path) -> None:
    job(tmp_path, with_("DRAM Uncorrectable            : 0", "DRAM Uncorrectable            : 3"))
    log = tmp_path / "rank_1.log"
    log.write_text(
        "[rank1]: world_size=2 rank=1 local_rank=1 pid=4289\n[rank1]: Traceback (most recent call last):\n"
        '[rank1]:   File "/app/train.py", line 61, in <module>\n[rank1]:     batch[key]\n[rank1]: KeyError: \'shard-7\'\n'
    )
    answer = diagnose(tmp_path)
    assert answer.initiating is not None and (answer.initiating.rank, answer.initiating.confidence) == (1, "strong")
    assert "gpu-uncorrectable-ecc" not in [d.entry for d in answer.diagnoses]
    assert any("DRAM Uncorrectable: 3" in lead["text"] for lead in answer.leads)


def test_a_run_that_completed_stays_healthy_whatever_the_card_has_been_through(tmp_path: Path) -> None:
    (tmp_path / "train.log").write_text("step=1 loss=2.0\nstep=2 loss=1.0\nTraining completed.\n")
    (tmp_path / "nvidia-smi.txt").write_text(with_("DRAM Uncorrectable            : 0", "DRAM Uncorrectable : 3"))
    assert diagnose(tmp_path).verdict == "healthy"


def test_the_report_alone_is_recognised_by_its_first_line() -> None:
    assert discover(text=REPORT)[0].kind == "gpu"
    assert diagnose(text=REPORT).verdict == "inconclusive"
