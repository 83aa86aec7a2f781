"""What `nvidia-smi` says about the GPUs of a node: its `-q` report, its table, and what it prints when a GPU is gone.

The report is nested by indentation and the same words stand in several places (`Pending` under the ECC mode and under
the remapped rows; uncorrectable errors since the driver was loaded and over the card's whole life), so each value is
judged by its path. A healthy report yields nothing.
"""

from __future__ import annotations

from collections.abc import Iterable

from . import lazy
from .model import Event, Source

KIND = "gpu_state"
DEFECTS = ("lost", "ecc", "remap_failed", "needs_reset", "unreadable")
"""States of a GPU that no work can be trusted to; the others (`remap_pending`, `slowed`, `no_driver`) explain, they do not
end a run that had begun."""

_GPU = lazy.regex(r"^GPU (?P<bus>[0-9A-Fa-f]{4,8}:[0-9A-Fa-f]{2}:[0-9A-Fa-f]{2}\.[0-9A-Fa-f])\s*$")
_FIELD = lazy.regex(r"^(?P<indent> *)(?P<key>[A-Za-z][\w .()/+\-]{0,60}?) *(?:: ?(?P<value>.*))?$")
_BUS = r"(?P<bus>[0-9A-Fa-f]{3,8}:[0-9A-Fa-f]{2}:[0-9A-Fa-f]{2}\.[0-9A-Fa-f])"
_LOST = lazy.regex(
    rf"Unable to determine the device handle for (?:GPU|gpu) ?{_BUS}|Unable to determine the device handle|GPU is lost"
)
_NO_DRIVER = lazy.regex(
    r"couldn't communicate with the NVIDIA driver|Failed to initialize NVML: |^No devices were found|NVIDIA driver is not loaded"
)
_TABLE_BUS = lazy.regex(r"^\|.{10,60}?(?P<bus>[0-9A-Fa-f]{4,8}:[0-9A-Fa-f]{2}:[0-9A-Fa-f]{2}\.[0-9A-Fa-f])")
_TABLE_ERROR = lazy.regex(r"^\|.{0,60}\bERR!")
_SLOWED = frozenset({"HW Slowdown", "HW Thermal Slowdown", "HW Power Brake Slowdown", "HW Power Braking", "SW Thermal Slowdown"})
_REASONS = ("Clocks Throttle Reasons", "Clocks Event Reasons")
_NO_ACTION = frozenset({"none", "n/a", "no", ""})


def read(lines: Iterable[tuple[int, str]], source: Source) -> list[Event]:
    """One event for each thing that is wrong with a GPU, at the line that says so."""
    report = _Report(source)
    for number, text in lines:
        report.take(number, text[:1000].rstrip())
    return report.finish()


class _Report:
    def __init__(self, source: Source) -> None:
        self.source = source
        self.events: list[Event] = []
        self._gpu = ""
        self._pids: list[int] = []
        self._own: list[tuple[str, int, str, int]] = []
        """(state, line, text, count) of the GPU being read."""
        self._path: list[tuple[int, str]] = []

    def take(self, number: int, text: str) -> None:
        if gpu := _GPU.match(text):
            self._close()
            self._gpu = gpu["bus"]
        elif lost := _LOST.search(text):
            bus = lost["bus"] or self._gpu
            self._add_now("lost", number, text.strip(), bus)
        elif _NO_DRIVER.search(text):
            self._add_now("no_driver", number, text.strip(), "")
        elif text.startswith("|"):
            self._table(number, text)
        elif field := _FIELD.match(text):
            self._field(number, len(field["indent"]), field["key"], (field["value"] or "")[:200].strip())

    def finish(self) -> list[Event]:
        self._close()
        return self.events

    def _close(self) -> None:
        ecc = [f for f in self._own if f[0] == "ecc"]
        said: set[str] = set()
        for state, line, text, _ in self._own:
            if state in said:
                continue
            said.add(state)
            self._event(state, line, text, self._gpu, sum(f[3] for f in ecc) if state == "ecc" else 0)
        self._own, self._pids, self._path = [], [], []

    def _add_now(self, state: str, line: int, text: str, bus: str) -> None:
        if not any(e.detail["state"] == state and e.detail["gpu"] == bus for e in self.events):
            self._event(state, line, text, bus, 0)

    def _event(self, state: str, line: int, text: str, bus: str, count: int) -> None:
        detail = {"state": state, "gpu": bus, "count": count, "pids": tuple(self._pids)}
        # A table's line names its GPU in the row above, a report's in the head of its block.
        said = text if not bus or bus.lower() in text.lower() else f"GPU {bus}: {text}"
        self.events.append(
            Event("confirmation", KIND, self.source.index, line, said[:300], node=self.source.node, detail=detail)
        )

    def _table(self, number: int, text: str) -> None:
        if bus := _TABLE_BUS.match(text):
            self._gpu = bus["bus"]
        if _TABLE_ERROR.match(text):
            self._add_now("unreadable", number, " ".join(text.split()), self._gpu)

    def _field(self, number: int, indent: int, key: str, value: str) -> None:
        while self._path and self._path[-1][0] >= indent:
            self._path.pop()
        above = [name for _, name in self._path]
        self._path.append((indent, key))
        if key == "Process ID" and value.isdigit() and len(value) < 10:
            self._pids.append(int(value))
        state, count = _judge(above, key, value)
        if state:
            where = above[-1] if above else ""
            said = f"{key}: {value}"
            self._own.append((state, number, f"{where}: {said}" if where else said, count))


def _judge(above: list[str], key: str, value: str) -> tuple[str, int]:
    """What this value says is wrong, if anything, and a count of errors."""
    lowered = value.lower()
    if lowered in ("err!", "[err!]", "unknown error", "[unknown error]"):
        return "unreadable", 0
    if "requires reset" in lowered:
        return "needs_reset", 0
    if "ECC Errors" in above and "Volatile" in above:
        uncorrectable = "Uncorrectable" in key or ("Double Bit" in above and key == "Total")
        if uncorrectable and value.isdigit() and int(value[:12]) > 0:
            return "ecc", int(value[:12])
    if lowered == "yes":
        if key in ("Remapping Failure Occurred", "Unrepairable Memory"):
            return "remap_failed", 0
        if key.startswith("Pending") and above[-1:] in (["Remapped Rows"], ["Retired Pages"]):
            return "remap_pending", 0
        if key == "Reset Required":
            return "needs_reset", 0
    if key == "GPU Recovery Action" and lowered not in _NO_ACTION:
        return "needs_reset", 0
    if key in _SLOWED and value == "Active" and any(name in _REASONS for name in above):
        return "slowed", 0
    return "", 0
