"""Probes on real training: what they print, that metrics and entries read it, and that nothing can break a run."""

from __future__ import annotations

import multiprocessing
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from faultbook import metrics, probes
from faultbook.catalog import load_catalog
from faultbook.detectors import evaluate_signature
from faultbook.model import Series
from faultbook.signatures import MetricSignature

pytestmark = pytest.mark.repro
torch = pytest.importorskip("torch")


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    """Small models on a shared machine: threads would wait for each other."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def model(width: int = 32, experts: int = 4) -> Any:
    class Block(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.norm = torch.nn.RMSNorm(width)
            self.gate = torch.nn.Linear(width, experts, bias=False)
            self.experts = torch.nn.ModuleList(torch.nn.Linear(width, width) for _ in range(experts))
            self.logit_scale = torch.nn.Parameter(torch.tensor(2.6593))
            self.temperature = torch.nn.Parameter(torch.tensor([0.07, 0.5]))

        def forward(self, x: Any) -> Any:
            x = self.norm(x)
            weights = self.gate(x).softmax(-1)
            mixed = sum(weights[..., n : n + 1] * expert(x) for n, expert in enumerate(self.experts))
            return mixed * self.logit_scale.exp() / self.temperature.mean()

    torch.manual_seed(0)
    return Block()


def train(net: Any, steps: int, accumulate: int = 1, width: int = 32) -> list[float]:
    optimizer = torch.optim.SGD(net.parameters(), lr=1e-7)
    torch.manual_seed(1)
    losses = []
    for _ in range(steps):
        for _ in range(accumulate):
            loss = net(torch.randn(8, width)).square().mean()
            loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.item())
    return losses


def read(lines: list[str]) -> dict[str, Series]:
    return {s.name: s for s in metrics.read_series(list(enumerate(lines, 1)))}


def test_one_line_attached_prints_series_that_metrics_reads():
    lines: list[str] = []
    net = model()
    probes.attach(net, every=3, write=lines.append)
    train(net, 9, accumulate=2)
    series = read(lines)
    assert series["step_time_ms"].steps == (1, 3, 6, 9)
    assert series["step_time_ms"].role == "step_time"
    assert series["logit_scale"].values[0] == pytest.approx(14.3, abs=0.1)
    assert series["temperature"].values[0] == pytest.approx(0.07, abs=0.01)
    assert 0 <= series["router_load_entropy"].values[0] <= 1 and 0.25 <= series["router_load_max"].values[0] <= 1
    for name in ("forward_ms", "norm_in_absmax", "norm_out_absmax", "norm_out_rms", "norm_out_rms_min", "activation_absmax"):
        assert len(series[name].values) == 4 and all(v > 0 for v in series[name].values), name
    assert series["norm_out_rms"].values[0] == pytest.approx(1.0, abs=0.1)


def test_numbers_of_training_are_the_same_with_and_without():
    plain, probed = model(), model()
    probes.attach(probed, every=1, write=lambda line: None)
    assert train(probed, 5) == train(plain, 5)
    assert all(torch.equal(a, b) for a, b in zip(plain.parameters(), probed.parameters(), strict=True))


def fires(name: str, lines: list[str]) -> bool:
    signature = load_catalog().by_name[name].signature
    assert isinstance(signature, MetricSignature)
    return evaluate_signature(signature, list(read(lines).values())) is not None


def named(slug: str, series: str) -> str:
    """The entry's metric signature that reads a series of the probes."""
    for item in load_catalog().signatures:
        if item.entry == slug and isinstance(item.signature, MetricSignature):
            first = (*item.signature.all, *item.signature.any)
            if any(series in p.series for p in first):
                return item.name
    pytest.skip(f"{slug} has no signature on {series} now")


def test_a_norm_that_overflows_in_half_precision_is_recognised():
    """The variance of values beyond 256 overflows fp16: the norm gives zeros (rmsnorm-variance-overflow-fp16)."""

    class HalfRMSNorm(torch.nn.Module):
        def forward(self, x: Any) -> Any:
            x = x.half()
            return (x * torch.rsqrt(x.square().mean(-1, keepdim=True) + 1e-5)).float()

    name = named("rmsnorm-variance-overflow-fp16", "norm_in_absmax")
    for size, expected in ((300.0, True), (3.0, False)):
        lines: list[str] = []
        net = torch.nn.Sequential(torch.nn.Linear(8, 8), HalfRMSNorm())
        torch.nn.init.eye_(net[0].weight)
        probes.attach(net, every=1, write=lines.append)
        optimizer = torch.optim.SGD(net.parameters(), lr=0.0)
        for _ in range(5):
            net(torch.full((4, 8), size)).sum().backward()
            optimizer.step()
        assert fires(name, lines) is expected


def test_ranks_that_drift_apart_are_recognised():
    name = named("replica-weights-diverge", "param_sum")
    for apart in (0.0, 0.5):
        lines = []
        for rank in range(3):
            net = model()
            with torch.no_grad():
                net.gate.weight += apart * (rank == 1)
            written: list[str] = []
            probe = probes.attach(net, every=1, checksum=True, write=written.append)
            train(net, 4)
            probe.detach()
            lines += [f"[rank{rank}]: {line}" for line in written]
        signature = load_catalog().by_name[name].signature
        series = metrics.read_series(list(enumerate(lines, 1)))
        assert (evaluate_signature(signature, series) is not None) is (apart > 0)


def _rank(rank: int, world: int, store: str, broken: int, queue: Any) -> None:
    import torch.distributed as dist

    dist.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=world)
    net = model()
    with torch.no_grad():
        net.gate.weight += 1.0 * (rank == 1)
    lines: list[str] = []
    probe = probes.attach(net, every=2, checksum=True, write=lines.append)
    if rank == broken:
        probe._norm = None  # type: ignore[assignment, method-assign]
        probe._modules = [(object(), "token")]  # its hooks cannot be put on
    train(net, 4)
    dist.barrier()
    queue.put((rank, lines))
    dist.destroy_process_group()


@pytest.mark.parametrize("broken", [-1, 0])
def test_the_checksum_is_compared_between_ranks_and_a_broken_probe_hangs_nobody(broken: int, tmp_path: Path):
    context = multiprocessing.get_context("spawn")
    queue = context.Queue()
    jobs = [context.Process(target=_rank, args=(r, 2, str(tmp_path / "store"), broken, queue)) for r in range(2)]
    for job in jobs:
        job.start()
    try:
        lines = dict(queue.get(timeout=120) for _ in jobs)
    finally:
        for job in jobs:
            job.join(20)
            job.kill()
    series = read(lines[1])
    assert series["param_sum_spread"].values[0] == pytest.approx(128.0, rel=1e-3)
    assert series["param_sum_spread"].steps == (1, 2, 4)
    assert lines[1][0].startswith("[rank1]: faultbook-probe step=1 ")
    if broken == 0:
        assert any("switched off" in line for line in lines[0])


@pytest.mark.parametrize("kind", ["write", "hook", "model", "optimizer", "every"])
def test_nothing_that_fails_in_a_probe_reaches_the_run(kind: str, monkeypatch: pytest.MonkeyPatch):
    said: list[str] = []

    def write(line: str) -> None:
        if kind == "write":
            raise OSError("no space left")
        said.append(line)

    net = model()
    expected = train(model(), 4)
    if kind == "hook":
        monkeypatch.setattr(probes, "absmax", lambda tensor: 1 / 0)
    if kind == "optimizer":
        monkeypatch.delattr(sys.modules["torch.optim.optimizer"], "register_optimizer_step_post_hook")
    given: Any = None if kind == "model" else net
    probes.attach(given, every="x" if kind == "every" else 1, write=write)  # type: ignore[arg-type]
    assert train(net, 4) == expected
    assert len(said) == (kind != "write")
    assert all("switched off" in line for line in said)


def test_hooks_sit_on_modules_only_for_measured_steps_and_detach_takes_all_off():
    net = model()
    probe = probes.attach(net, every=10, write=lambda line: None)

    def hooks() -> int:
        return sum(len(m._forward_hooks) + len(m._forward_pre_hooks) for m in net.modules())

    assert hooks() == 4
    train(net, 3)
    assert hooks() == 0
    probe.detach()
    train(net, 20)
    assert hooks() == 0 and probe.step == 3


def test_a_run_whose_steps_are_all_skipped_is_still_printed():
    lines: list[str] = []
    net = model()
    probes.attach(net, every=50, write=lines.append)
    for _ in range(130):
        net(torch.randn(2, 32))
    assert len(lines) == 2 and all("step=0 " in line for line in lines)


def test_evaluation_is_not_measured():
    lines: list[str] = []
    net = model()
    probes.attach(net, every=1, write=lines.append)
    net.eval()
    net(torch.full((2, 32), 1e6))
    net.train()
    train(net, 1)
    assert read(lines)["norm_in_absmax"].values[0] < 100


def test_a_compiled_model_runs_and_prints_what_stands_outside_the_graph():
    lines: list[str] = []
    net = model()
    probes.attach(net, every=2, write=lines.append)
    compiled = torch.compile(net, backend="eager")
    assert train(compiled, 4) == pytest.approx(train(model(), 4))
    assert not any("switched off" in line for line in lines)
    assert read(lines)["logit_scale"].steps == (1, 2, 4)


def test_overhead_is_small(capsys: pytest.CaptureFixture[str]):
    """Prints the ratio; fails only when a probe of every 50th step costs more than a fifth."""
    width = 128
    layer = torch.nn.TransformerEncoderLayer(width, 4, 4 * width, batch_first=True, dropout=0.0)
    nets = {every: torch.nn.TransformerEncoder(layer, 4, enable_nested_tensor=False) for every in (0, 50, 1)}
    batch = torch.randn(4, 32, width)
    spent: dict[int, list[float]] = {every: [] for every in nets}
    optimizers = {every: torch.optim.SGD(net.parameters(), lr=1e-4) for every, net in nets.items()}
    for every, net in nets.items():
        if every:
            probes.attach(net, every=every, write=lambda line: None)
    for _ in range(100):  # interleaved, so that a busy machine slows all alike
        for every, net in nets.items():
            start = time.perf_counter()
            net(batch).square().mean().backward()
            optimizers[every].step()
            optimizers[every].zero_grad()
            spent[every].append(time.perf_counter() - start)

    def middle(times: list[float]) -> float:
        return sum(sorted(times)[10:-10]) / (len(times) - 20)

    usual, often = (middle(spent[every]) / middle(spent[0]) for every in (50, 1))
    with capsys.disabled():
        print(f"\nprobe overhead: every=50 {usual:.3f}x, every=1 {often:.3f}x of {1e3 * middle(spent[0]):.1f} ms a step")
    assert usual < 1.2


def test_the_trainer_callback_prints_the_trainers_own_steps(tmp_path: Path):
    transformers = pytest.importorskip("transformers")
    pytest.importorskip("accelerate")
    lines: list[str] = []
    net = model()

    class Net(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = net

        def forward(self, x: Any, labels: Any = None) -> dict[str, Any]:
            out = self.inner(x)
            return {"loss": (out - labels).square().mean(), "logits": out}

    data = [{"x": torch.randn(32), "labels": torch.zeros(32)} for _ in range(32)]
    arguments = transformers.TrainingArguments(
        str(tmp_path), max_steps=6, per_device_train_batch_size=2, gradient_accumulation_steps=2, report_to=[],
        save_strategy="no", use_cpu=True, disable_tqdm=True,
    )  # fmt: skip
    callback = probes.trainer_callback(every=2, write=lines.append)
    transformers.Trainer(Net(), arguments, train_dataset=data, callbacks=[callback]).train()
    series = read(lines)
    assert series["logit_scale"].steps == (1, 2, 4, 6)
    assert len(series["norm_out_rms_min"].values) == 4
    assert not any(m._forward_hooks for m in net.modules())


def test_the_lightning_callback_prints_the_trainers_own_steps(tmp_path: Path):
    try:
        import lightning
    except ImportError:  # the same library under its older name
        lightning = pytest.importorskip("pytorch_lightning")
    lines: list[str] = []

    class Module(lightning.LightningModule):
        def __init__(self) -> None:
            super().__init__()
            self.inner = model()

        def forward(self, x: Any) -> Any:
            return self.inner(x)

        def training_step(self, batch: Any, index: int) -> Any:
            return self(batch).square().mean()

        def configure_optimizers(self) -> Any:
            return torch.optim.SGD(self.parameters(), lr=1e-4)

    loader = torch.utils.data.DataLoader(torch.randn(32, 32), batch_size=2)
    trainer = lightning.Trainer(
        max_steps=6, accumulate_grad_batches=2, accelerator="cpu", logger=False, enable_checkpointing=False,
        enable_progress_bar=False, default_root_dir=tmp_path, callbacks=[probes.lightning_callback(every=2, write=lines.append)],
    )  # fmt: skip
    trainer.fit(Module(), loader)
    assert read(lines)["logit_scale"].steps == (1, 2, 4, 6)
    assert len(read(lines)["norm_out_rms_min"].values) == 4


def test_importing_the_probes_imports_no_torch():
    code = "import sys, faultbook.probes; sys.exit(any(m in sys.modules for m in ('torch', 'transformers', 'lightning')))"
    assert subprocess.run([sys.executable, "-c", code], timeout=60, env=dict(os.environ)).returncode == 0
