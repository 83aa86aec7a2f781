"""Numbers that stock logs do not hold, printed as one `key=value` line every so many steps.

    from faultbook import probes
    probes.attach(model, every=50)                      # plain PyTorch: this line is all
    Trainer(..., callbacks=[probes.trainer_callback()])            # Hugging Face
    lightning.Trainer(..., callbacks=[probes.lightning_callback()])

    [rank0]: faultbook-probe step=50 step_time_ms=41.2 forward_ms=12.9 norm_in_absmax=18.4 norm_out_rms_min=0.97 …

A probe never ends a run: everything it does is guarded, and what fails once is switched off with one line. Between
measured steps no hook sits on any module, so that it costs next to nothing. Inside a `torch.compile`d graph, and
while a CUDA graph is captured, modules are not measured; parameters and times are.

torch, transformers and lightning are imported where they are used, never at import.
"""

from __future__ import annotations

import math
import os
import time
from collections.abc import Callable
from typing import Any

from .probe_readings import Clock, absmax, device_of, interesting, scale_values, scales, sharded, tensor_of

__all__ = ["Probe", "attach", "lightning_callback", "trainer_callback"]

MARK = "faultbook-probe"
MOST_EXPERTS = 1024
STALLED = 64
"""Forward passes of a measured step without an optimizer step (a loss scaler skips them all) until it is printed anyhow."""


def attach(
    model: Any,
    *,
    every: int = 50,
    checksum: bool = False,
    write: Callable[[str], Any] | None = None,
) -> Probe:
    """Prints the numbers of every `every`-th optimizer step of `model`, and of the first one.

    `checksum`: also the sum of all parameters, compared between the ranks. **Every rank then makes one collective call
    (an all-gather of one number on the default group) at each printed step**: only for jobs in which all ranks
    take the same optimizer steps, and never on some ranks only. Sharded parameters are left out: they differ by design.
    `write` gets each line instead of `print`. `detach()` of the returned probe takes everything off.
    """
    probe = Probe(model, every=every, checksum=checksum, write=write)
    probe.follow_optimizer()
    return probe


class Probe:
    """What `attach` returns; loops that know their own steps call `begin_step` and `end_step`."""

    def __init__(
        self,
        model: Any,
        *,
        every: int = 50,
        checksum: bool = False,
        write: Callable[[str], Any] | None = None,
        step: int = 0,
    ) -> None:
        self.every = 50
        self.step = step
        self._write = write or _print
        self._handles: list[Any] = []
        self._optimizer_handle: Any = None
        self._optimizer: int | None = None
        self._strangers = 0
        self._norms: dict[str, list[Any]] = {}
        self._loads: list[Any] = []
        self._forwards = 0
        self._started: Any = None
        self._forward: Any = None
        self._since: tuple[float, int] | None = None
        self._scales: list[tuple[str, Any, bool]] = []
        self._modules: list[tuple[Any, str]] = []
        self._measuring, self._summing = True, False
        self._model = model
        self._guard(self._prepare, every, checksum)

    def _prepare(self, every: int, checksum: bool) -> None:
        self.every = max(1, int(every))
        self._modules = list(interesting(self._model))
        self._scales = list(scales(self._model))
        self._summing = bool(checksum) and not sharded(self._model)
        if checksum and not self._summing:
            self._write(f"{MARK}: parameters are sharded, no checksum")
        self.begin_step()

    # --- steps ---

    def begin_step(self) -> None:
        """Before a step's first forward pass."""
        self._guard(self._begin)

    def end_step(self, step: int | None = None) -> None:
        """After an optimizer step; `step` is its number, counted from 1."""
        due = False
        try:
            self.step = self.step + 1 if step is None else int(step)
            due = self._due(self.step)
        except Exception as error:
            self._give_up(error)
        # Apart from what is measured: a rank whose hooks failed must still take part in the collective.
        total = self._guarded_sums() if due and self._summing else {}
        if due:
            self._guard(self._print_step, total)
        self._guard(self._begin)

    def _due(self, step: int) -> bool:
        return step == 1 or step % self.every == 0

    def _begin(self) -> None:
        if self._since is None:
            self._since = (time.perf_counter(), self.step)
        if not self._due(self.step + 1):
            self._take_off()
        elif not self._handles:
            self._put_on()

    def follow_optimizer(self) -> None:
        """Counts the steps of the optimizer that holds the model's parameters, whoever calls it."""
        self._guard(self._follow)

    def _follow(self) -> None:
        from torch.optim.optimizer import register_optimizer_step_post_hook

        own = {id(p) for p in self._model.parameters()}

        def stepped(optimizer: Any, *_: Any) -> None:
            try:
                if self._optimizer is None:
                    mine = any(id(p) in own for group in optimizer.param_groups for p in group["params"])
                    # Wrappers may have replaced the parameters (flattened, sharded): then any optimizer will do.
                    self._strangers += not mine
                    if mine or self._strangers > 3:
                        self._optimizer = id(optimizer)
            except Exception as error:
                self._give_up(error)
            if self._optimizer == id(optimizer):
                self.end_step()

        self._optimizer_handle = register_optimizer_step_post_hook(stepped)

    def detach(self) -> None:
        """Takes every hook off; nothing is printed any more."""
        self._measuring = self._summing = False
        for handle in [*self._handles, self._optimizer_handle]:
            try:
                handle.remove()
            except Exception:  # already gone
                continue
        self._handles, self._optimizer_handle = [], None

    # --- a measured step ---

    def _put_on(self) -> None:
        self._norms, self._loads, self._forwards, self._started, self._forward = {}, [], 0, None, None
        self._handles.append(self._model.register_forward_pre_hook(self._hook(self._forward_starts)))
        for module, kind in self._modules:
            self._handles.append(module.register_forward_hook(self._hook(self._norm if kind != "router" else self._router, kind)))
        self._handles.append(self._model.register_forward_hook(self._hook(self._forward_ends)))

    def _take_off(self) -> None:
        for handle in self._handles:
            handle.remove()
        self._handles = []

    def _hook(self, action: Callable[..., None], *more: Any) -> Callable[..., None]:
        def hook(module: Any, inputs: Any, output: Any = None) -> None:
            if not self._measuring:
                return
            try:
                import torch

                if torch.compiler.is_compiling() or (torch.cuda.is_available() and torch.cuda.is_current_stream_capturing()):
                    return
                with torch.no_grad():
                    action(module, inputs, output, *more)
            except Exception as error:
                self._give_up(error)

        return hook

    def _forward_starts(self, module: Any, inputs: Any, output: Any) -> None:
        if module.training and self._started is None:
            self._started = Clock(device_of(module))

    def _forward_ends(self, module: Any, inputs: Any, output: Any) -> None:
        if not module.training:
            return
        if self._started is not None and self._forward is None:
            self._forward = self._started.stop()
        tensor = tensor_of(output)
        if tensor is not None:
            self._keep("activation_absmax", absmax(tensor))
        self._forwards += 1
        if self._forwards % STALLED == 0 and self._optimizer_handle is not None:
            self._print_step({})

    def _norm(self, module: Any, inputs: Any, output: Any, kind: str) -> None:
        before, after = tensor_of(inputs), tensor_of(output)
        if not module.training or before is None or after is None:
            return
        import torch

        self._keep("norm_in_absmax", absmax(before))
        self._keep("norm_out_absmax", absmax(after))
        if kind == "token" and after.dim() > 1:
            rms = torch.linalg.vector_norm(after, dim=-1, dtype=torch.float32) / math.sqrt(after.shape[-1])
            self._keep("norm_out_rms_min", rms.min())
            self._keep("norm_out_rms", rms.square().mean().sqrt())
        else:
            norm = torch.linalg.vector_norm(after, dtype=torch.float32)
            self._keep("norm_out_rms", norm / math.sqrt(after.numel()))

    def _router(self, module: Any, inputs: Any, output: Any, kind: str) -> None:
        hidden, scores = tensor_of(inputs), tensor_of(output)
        if not module.training or hidden is None or scores is None or scores.dim() < 2:
            return
        if not 2 <= scores.shape[-1] <= min(MOST_EXPERTS, hidden.shape[-1] - 1):
            return  # a gate that scales features, not one that chooses among experts
        import torch

        experts = scores.shape[-1]
        chosen = scores.reshape(-1, experts).argmax(-1)
        load = torch.zeros(experts, device=scores.device).scatter_add_(0, chosen, torch.ones_like(chosen, dtype=torch.float32))
        load = load / load.sum()
        entropy = -(load * load.clamp_min(1e-12).log()).sum() / math.log(experts)
        self._loads.append(torch.stack([entropy, load.max()]))

    def _keep(self, name: str, value: Any) -> None:
        self._norms.setdefault(name, []).append(value.float())

    # --- the line ---

    def _print_step(self, total: dict[str, float]) -> None:
        import torch

        values: dict[str, float] = {}
        now = time.perf_counter()
        if self._since is not None and self.step > self._since[1]:
            values["step_time_ms"] = 1e3 * (now - self._since[0]) / (self.step - self._since[1])
        self._since = (now, self.step)
        with torch.no_grad():
            if self._forward is not None:
                values["forward_ms"] = self._forward()
            for name, kept in self._norms.items():
                # The extreme of all layers, and of a layer's mean the smallest: one bad layer must show.
                stacked = torch.stack([k.to(kept[0].device) for k in kept])
                values[name] = float((stacked.max() if name.endswith("absmax") else stacked.min()).item())
            if self._loads:
                least = torch.stack([x.to(self._loads[0].device) for x in self._loads])
                values["router_load_entropy"], values["router_load_max"] = float(least[:, 0].min()), float(least[:, 1].max())
            values |= scale_values(self._scales)
            if device_of(self._model).type == "cuda":
                values["memory_allocated_mib"] = torch.cuda.memory_allocated() / 2**20
        self._norms, self._loads, self._started, self._forward = {}, [], None, None
        rank = _rank()
        prefix = "" if rank is None else f"[rank{rank}]: "
        text = " ".join(f"{name}={value:.6g}" for name, value in values.items())
        sums = "".join(f" {name}={value:.12g}" for name, value in total.items())
        self._write(f"{prefix}{MARK} step={self.step} {text}{sums}")

    def _guarded_sums(self) -> dict[str, float]:
        """This rank's parameter sum and the greatest difference between ranks; one collective, come what may."""
        import torch
        import torch.distributed as dist

        try:
            with torch.no_grad():
                own = sum((p.detach().sum(dtype=torch.float64) for p in self._model.parameters()), torch.zeros(()))
            value = float(own)
        except Exception as error:
            self._give_up(error)
            value = math.nan
        found = {"param_sum": value}
        try:
            if dist.is_available() and dist.is_initialized() and dist.get_world_size() > 1:
                # NCCL wants its tensor on the GPU; the exponent of a sum may need all 64 bits.
                device = torch.device("cuda", torch.cuda.current_device()) if dist.get_backend() == "nccl" else "cpu"
                mine = torch.tensor([value], dtype=torch.float64, device=device)
                every = [torch.empty_like(mine) for _ in range(dist.get_world_size())]
                dist.all_gather(every, mine)
                sums = torch.cat(every)
                found["param_sum_spread"] = float(sums.max() - sums.min())
        except Exception as error:
            self._summing = False
            self._give_up(error)
        return found

    # --- never in the way ---

    def _guard(self, action: Callable[..., None], *arguments: Any) -> None:
        if not self._measuring:
            return
        try:
            action(*arguments)
        except Exception as error:
            self._give_up(error)

    def _give_up(self, error: Exception) -> None:
        """Says once that nothing is measured any more; the checksum's collective goes on, for the other ranks' sake."""
        if not self._measuring:
            return
        self._measuring = False
        try:
            self._take_off()
            self._write(f"{MARK}: switched off: {type(error).__name__}: {str(error)[:200]}")
        except Exception:  # nowhere to say it
            return


def trainer_callback(every: int = 50, *, checksum: bool = False, write: Callable[[str], Any] | None = None) -> Any:
    """A `TrainerCallback` for Hugging Face's Trainer; arguments as for `attach`."""
    from transformers import TrainerCallback

    class FaultbookProbe(TrainerCallback):  # type: ignore[misc,unused-ignore]
        probe: Probe | None = None

        def on_train_begin(self, args: Any, state: Any, control: Any, model: Any = None, **_: Any) -> None:
            if model is not None:
                done = int(getattr(state, "global_step", 0) or 0)
                self.probe = Probe(model, every=every, checksum=checksum, write=write, step=done)

        def on_step_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
            if self.probe is not None:
                self.probe.begin_step()

        def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
            if self.probe is not None:
                self.probe.end_step(getattr(state, "global_step", None))

        def on_train_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
            if self.probe is not None:
                self.probe.detach()

    return FaultbookProbe()


def lightning_callback(every: int = 50, *, checksum: bool = False, write: Callable[[str], Any] | None = None) -> Any:
    """A `Callback` for Lightning's Trainer; arguments as for `attach`."""
    from importlib import import_module

    try:
        base: Any = import_module("lightning.pytorch").Callback
    except ImportError:
        base = import_module("pytorch_lightning").Callback

    class FaultbookProbe(base):  # type: ignore[misc]
        probe: Probe | None = None

        def on_train_start(self, trainer: Any, pl_module: Any) -> None:
            self.probe = Probe(pl_module, every=every, checksum=checksum, write=write, step=int(trainer.global_step))

        def on_train_batch_end(self, trainer: Any, pl_module: Any, outputs: Any, batch: Any, batch_idx: int) -> None:
            # Batches of one accumulated step count once.
            if self.probe is not None and trainer.global_step != self.probe.step:
                self.probe.end_step(trainer.global_step)

        def on_train_end(self, trainer: Any, pl_module: Any) -> None:
            if self.probe is not None:
                self.probe.detach()

    return FaultbookProbe()


def _rank() -> int | None:
    try:
        import torch.distributed as dist

        if dist.is_available() and dist.is_initialized():
            return int(dist.get_rank())
    except (ImportError, RuntimeError, ValueError):
        pass
    text = os.environ.get("RANK", "")
    return int(text) if text.isdigit() else None


def _print(line: str) -> None:
    print(line, flush=True)
