"""What the probes look at in a model, and how they read it. torch is imported where it is used."""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from typing import Any

_NORM = re.compile(r"(?:Layer|RMS|Rms|Group|Batch)_?Norm")
_PER_TOKEN = re.compile(r"(?:Layer|RMS|Rms)_?Norm")
_ROUTER = re.compile(r"(?:^|_)(?:router|gate)$")
_TEMPERATURE = re.compile(r"^(?:log_?)?(?:logit_)?(?:temperature|temp|tau)$")
_SCALE = re.compile(r"^(?:log_)?logit_scale$|^log_scale$")


def interesting(model: Any) -> Any:
    """(module, kind) of normalisation layers and routers."""
    for name, module in model.named_modules():
        kind = type(module).__name__
        if _NORM.search(kind):
            yield module, "token" if _PER_TOKEN.search(kind) else "whole"
        elif _ROUTER.search(name.rpartition(".")[2].lower()) and next(module.parameters(recurse=True), None) is not None:
            yield module, "router"


def scales(model: Any) -> Any:
    """(printed name, parameter, whether it holds a logarithm) of learned temperatures and scales of logits."""
    for name, parameter in model.named_parameters():
        last = name.rpartition(".")[2].lower()
        if parameter.numel() > 4096 or not (_TEMPERATURE.search(last) or _SCALE.search(last)):
            continue
        if _SCALE.search(last):
            # Contrastive models store the logarithm: it starts at 2.7 and is clamped at 4.6. A plain factor starts at 10 or more.
            yield "logit_scale", parameter, last.startswith("log_") or float(parameter.detach().float().max()) < 7
        else:
            yield "temperature", parameter, last.startswith("log") and not last.startswith("logit")


def scale_values(scales: list[tuple[str, Any, bool]]) -> dict[str, float]:
    """The least temperature and the greatest scale: where a collapse begins."""
    found: dict[str, list[float]] = {}
    for name, parameter, logarithm in scales:
        value = parameter.detach().float()
        value = value.exp() if logarithm else value
        found.setdefault(name, []).append(float(value.min() if name == "temperature" else value.max()))
    return {name: min(values) if name == "temperature" else max(values) for name, values in found.items()}


def sharded(model: Any) -> bool:
    kinds = {type(m).__name__ for m in model.modules()} | {type(p).__name__ for p in model.parameters()}
    return any("FullyShardedDataParallel" in k or k in ("DTensor", "FlatParameter") or k.startswith("FSDP") for k in kinds)


def tensor_of(value: Any) -> Any:
    """The first floating-point tensor of what a module takes or gives."""
    import torch

    if isinstance(value, torch.Tensor):
        return value.detach() if value.is_floating_point() and value.numel() else None
    if isinstance(value, dict):
        value = tuple(value.values())
    if isinstance(value, (tuple, list)):
        return next((t for v in value if (t := tensor_of(v)) is not None), None)
    return None


def absmax(tensor: Any) -> Any:
    """Without a copy of the tensor; nan where it holds one."""
    low, high = tensor.aminmax()
    return low.abs().maximum(high.abs())


def device_of(model: Any) -> Any:
    import torch

    parameter = next(model.parameters(), None)
    return torch.device("cpu") if parameter is None else parameter.device


class Clock:
    """Milliseconds on the device: no synchronisation before they are asked for."""

    def __init__(self, device: Any) -> None:
        import torch

        cuda: Any = torch.cuda
        self._events: Any = None
        self._start = time.perf_counter()
        if device.type == "cuda":
            self._events = (cuda.Event(enable_timing=True), cuda.Event(enable_timing=True))
            self._events[0].record()

    def stop(self) -> Callable[[], float]:
        if self._events is None:
            spent = 1e3 * (time.perf_counter() - self._start)
            return lambda: spent
        first, second = self._events
        second.record()

        def elapsed() -> float:
            second.synchronize()
            return float(first.elapsed_time(second))

        return elapsed
