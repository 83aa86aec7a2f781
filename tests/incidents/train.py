"""The training program of the incident corpus: ordinary code whose faults lie in its data and configuration.

Run in two ways, both by generate.py: by the reproduction runner (`run(ctx)`), and by torchrun (as a script).
What truly happened goes to `note(...)`, outside the log: a label is never read from the log it is for.
"""

from __future__ import annotations

import ctypes
import errno
import json
import logging
import os
import random
import signal
import sys
import time
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.distributed.elastic.multiprocessing.errors import record
from torch.nn.parallel import DistributedDataParallel

CASE: dict[str, Any] = json.loads(os.environ.get("INCIDENT_CASE", "{}"))
VOCAB, CLASSES, LENGTH, BATCH = 60, 8, 5, 6
log = logging.getLogger("train")


def note(**facts: Any) -> None:
    """Truth for generate.py, one JSON line per fact; replaced by the runner's journal there."""
    folder = os.environ.get("INCIDENT_TRUTH")
    if folder:
        with open(f"{folder}/rank_{os.environ['RANK']}.jsonl", "a", encoding="utf-8") as out:
            out.write(json.dumps({"attempt": attempt(), **facts}) + "\n")


def attempt() -> int:
    return int(os.environ.get("TORCHELASTIC_RESTART_COUNT", "0"))


def kind() -> str:
    return str(CASE.get("kind", ""))


def odd(rank: int) -> bool:
    """Whether the fault lies on this rank."""
    return (rank == CASE.get("guilty") or bool(CASE.get("everywhere"))) and attempt() <= CASE.get("last_attempt", 99)


# --- data, with the fault in it ---------------------------------------------------------------------------------


def write_shard(folder: Path, rank: int) -> None:
    """One file per step. Labels hold the highest class in every batch, except where the case wants otherwise."""
    shard = folder / f"shard-{rank:05d}"
    shard.mkdir(parents=True, exist_ok=True)
    rng, at = random.Random(100 + rank), CASE.get("at", 5)
    for step in range(1, CASE.get("steps", 9) + 1):
        rows = [
            {"tokens": [rng.randrange(VOCAB) for _ in range(LENGTH)], "label": rng.randrange(1, CLASSES), "weight": 1.0}
            for _ in range(BATCH)
        ]
        rows[0]["label"] = CLASSES - 1
        part: dict[str, Any] = {"rows": rows, "stats": ["tokens", "labels"], "experts": [0, 1]}
        path = shard / f"part-{step:04d}.json"
        path.unlink(missing_ok=True)
        if not (odd(rank) and step == at):
            path.write_text(json.dumps(part), encoding="utf-8")
            continue
        damage(part, rows)
        text = json.dumps(part)
        if kind() == "bad-json":
            text = text[: len(text) // 2]
        path.write_text(text, encoding="utf-8")
        if kind() == "not-utf8":
            path.write_bytes(text.encode().replace(b'"label"', b'"lab\xe9l"', 1))
        elif kind() == "missing-shard":
            path.rename(path.with_suffix(".json.tmp"))
        elif kind() in ("hang", "hang-all"):
            path.unlink()
            os.mkfifo(path)  # opening it waits for a writer that never comes: storage that does not answer


def damage(part: dict[str, Any], rows: list[dict[str, Any]]) -> None:
    what = kind()
    if what in ("label-range", "restart-other"):
        rows[3]["label"] = CLASSES + 3
    elif what == "token-range":
        rows[2]["tokens"][1] = VOCAB + 7
    elif what == "unequal-lengths":
        rows[1]["tokens"].pop()
    elif what == "missing-field":
        del rows[4]["label"]
    elif what == "host-alloc":
        part["pad_to"] = 1 << 47
    elif what in ("local-skip", "finite-check", "local-finite-check"):
        rows[5]["weight"] = float("nan")
    elif what == "skip-collective":
        part["rows"] = [{**r, "label": 0} for r in rows]
    elif what == "wrong-order":
        part["stats"] = ["labels", "tokens"]
    elif what == "size-mismatch":
        part["rows"] = [{**r, "label": min(r["label"], CLASSES - 3)} for r in rows]
    elif what == "moe-empty":
        part["experts"] = []
    elif what in ("sigkill", "sigsegv", "sigabrt", "sigbus", "exit-code"):
        part["native"] = what
    elif what == "stall":
        part["delay"] = 3 * CASE["timeout"]
    elif what in ("uneven", "early-stop"):
        part["last"] = True


def read_part(path: Path) -> dict[str, Any]:
    with open(path, encoding="utf-8") as file:
        return json.load(file)


def native_decode(how: str) -> None:
    """Stands in for a decoder in C: it ends the process without a Python exception."""
    note(fired=how)
    if how == "sigsegv":
        ctypes.string_at(0)
    elif how == "sigabrt":
        os.abort()
    elif how == "exit-code":
        os._exit(7)
    else:
        os.kill(os.getpid(), signal.SIGKILL if how == "sigkill" else signal.SIGBUS)
        time.sleep(30)


def collate(part: dict[str, Any]) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    rows = part["rows"]
    tokens = torch.stack([torch.tensor(r["tokens"]) for r in rows])
    if "pad_to" in part:
        tokens = F.pad(tokens, (0, part["pad_to"]))
    return tokens, torch.tensor([r["label"] for r in rows]), torch.tensor([r["weight"] for r in rows])


def next_batch(path: Path, rank: int, step: int) -> tuple[dict[str, Any], torch.Tensor, torch.Tensor, torch.Tensor]:
    if kind() in ("hang", "hang-all") and odd(rank) and step == CASE.get("at", 5):
        note(fired=step)
    part = read_part(path)
    if "native" in part:
        native_decode(part["native"])
    if "delay" in part:
        note(fired=step)
        if CASE.get("said"):
            log.warning("storage: read of %s is slow, still waiting", path.name)
        time.sleep(part["delay"])
    return part, *collate(part)


# --- model and collectives --------------------------------------------------------------------------------------


class Classifier(nn.Module):
    def __init__(self, blocks: int = 2, width: int = 16):
        super().__init__()
        self.embed = nn.Embedding(VOCAB, width)
        self.blocks = nn.ModuleList(nn.Linear(width, width) for _ in range(blocks))
        self.head = nn.Linear(width, CLASSES)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        x = self.embed(tokens).mean(1)
        for block in self.blocks:
            x = x + torch.tanh(block(x))
        return self.head(x)


def build(rank: int) -> nn.Module:
    torch.manual_seed(0)
    blocks = 2
    if kind() in ("fsdp-divergent-init", "parameters-differ") and odd(rank):
        blocks = 3
        note(fired=0)
    model = Classifier(blocks)
    log.info("model: %d blocks, trainable parameters: %s", blocks, f"{sum(p.numel() for p in model.parameters()):,}")
    if "fsdp" in CASE.get("use", ()):
        from torch.distributed.fsdp import fully_shard

        for block in model.blocks:
            fully_shard(block)
        return fully_shard(model)
    if dist.get_debug_level() == dist.DebugLevel.DETAIL:
        return model  # DDP on gloo crashes under DETAIL, without any fault: gradients are reduced by hand
    return DistributedDataParallel(model)


def sync_gradients(model: nn.Module) -> None:
    flat = torch.cat([p.grad.flatten() for p in model.parameters() if p.grad is not None])
    dist.all_reduce(flat)


def sync_metrics(labels: torch.Tensor, world: int, rank: int, step: int) -> None:
    """Label counts of all ranks, gathered only where there are positives: the fault of skip-collective."""
    if int(labels.count_nonzero()) > 0:
        counts = torch.tensor([float(labels.count_nonzero()), float(labels.numel())])
        parts = [torch.zeros(2) for _ in range(world)]
        dist.all_gather(parts, counts)
    else:
        note(fired=step)


def reduce_tokens(tokens: torch.Tensor, world: int) -> None:
    dist.all_reduce(tokens.float().sum().reshape(1))


def gather_labels(labels: torch.Tensor, world: int) -> None:
    parts = [torch.zeros(3) for _ in range(world)]
    dist.all_gather(parts, labels[:3].float())


def sync_stats(part: dict[str, Any], tokens: torch.Tensor, labels: torch.Tensor, world: int, step: int) -> None:
    if part["stats"][0] != "tokens":
        note(fired=step)
    for name in part["stats"]:
        if name == "tokens":
            reduce_tokens(tokens, world)
        else:
            gather_labels(labels, world)


def sync_histogram(labels: torch.Tensor, step: int) -> None:
    histogram = torch.bincount(labels).float()
    if histogram.numel() != CLASSES:
        note(fired=step)
    dist.all_reduce(histogram)


def expert_exchange(part: dict[str, Any], group: dist.ProcessGroup | None, size: int, step: int) -> None:
    if not part["experts"]:
        note(fired=step)
        return
    sent = torch.ones(2 * size)
    dist.all_to_all_single(torch.zeros_like(sent), sent, group=group)


def balance_loss(value: torch.Tensor) -> None:
    dist.all_reduce(value.detach().clone())


def evaluate(model: nn.Module, tokens: torch.Tensor, labels: torch.Tensor) -> float:
    correct = torch.tensor([0.0, float(labels.numel())])
    dist.all_reduce(correct)
    return float(correct[0] / correct[1])


def full_state(model: nn.Module) -> dict[str, torch.Tensor]:
    return {name: p.full_tensor() if hasattr(p, "full_tensor") else p for name, p in model.named_parameters()}


def save_checkpoint(model: nn.Module, rank: int, step: int, folder: Path) -> None:
    if rank != 0:
        return
    if CASE.get("said", True):
        log.info("saving checkpoint at step %d", step)
    started = time.monotonic()
    state = full_state(model) if kind() == "rank0-state-dict" and step == CASE.get("at", 5) else {}
    with open("/dev/full" if kind() == "disk-full" and step == CASE.get("at", 5) else folder / "step.pt", "wb") as file:
        file.write(b"weights" * 2000)
        if kind() == "slow-save" and step == CASE.get("at", 5):
            note(fired=step)
            time.sleep(3 * CASE["timeout"])
    if CASE.get("said", True):
        log.info("saved checkpoint at step %d in %.1f s, %d tensors", step, time.monotonic() - started, len(state))


def tokenize(rank: int) -> None:
    """Rank 0 prepares the data that all read afterwards."""
    if rank == 0:
        note(fired=0)
        for done in range(1, 7):
            log.info("tokenizing: %d/6 files", done)
            time.sleep(CASE["timeout"] / 2)
    dist.barrier()


def load_weights(model: nn.Module) -> None:
    saved = Classifier().state_dict()
    saved["classifier.weight"] = saved.pop("head.weight")
    getattr(model, "module", model).load_state_dict(saved)


# --- the run ----------------------------------------------------------------------------------------------------


def train(rank: int, world: int, folder: Path) -> None:
    use = CASE.get("use", ())
    expert_group, size = None, CASE.get("group_size", 2)
    if "experts" in use:
        members = [list(range(i, i + size)) for i in range(0, world, size)]
        groups = [dist.new_group(m) for m in members]
        expert_group = groups[rank // size]
        if rank == 0 and CASE.get("say_groups", True):
            log.info("expert groups: %s", members)
    if kind() == "slow-preprocess":
        tokenize(rank)
    model = build(rank)
    if kind() == "all-state-dict":
        load_weights(model)
    optimizer = torch.optim.SGD(model.parameters(), 0.05)
    parts = sorted((folder / f"shard-{rank:05d}").glob("part-*.json"))
    if kind() == "missing-shard" and odd(rank):
        parts = [folder / f"shard-{rank:05d}" / f"part-{n:04d}.json" for n in range(1, CASE.get("steps", 9) + 1)]
    steps = CASE.get("steps", 9)
    for step, path in enumerate(parts, 1):
        part, tokens, labels, weights = next_batch(path, rank, step)
        if part.get("last"):
            note(fired=step)
            if kind() == "early-stop":
                log.info("early stopping at step %d: loss of this shard has not improved for 3 checks", step)
            elif CASE.get("said"):
                log.info("shard-%05d exhausted after %d batches, epoch done", rank, step)
            break
        if kind() in ("local-skip", "healthy-skip") and not torch.isfinite(weights).all():
            note(fired=step)
            if CASE.get("said"):
                log.warning("non-finite weights at step %d, skipping batch", step)
            continue
        if kind() == "local-finite-check" and not torch.isfinite(weights).all():
            raise FloatingPointError(f"non-finite weights in {path.name} at step {step}")
        if kind() == "handled" and odd(rank) and step == CASE.get("at", 5):
            note(fired=step)
            log.warning("CUDA out of memory on rank %d, skipping batch %d", rank, step)
            continue
        if CASE.get("step_time"):
            time.sleep(CASE["step_time"])
        loss = (F.cross_entropy(model(tokens), labels, reduction="none") * weights).mean()
        optimizer.zero_grad()
        loss.backward()
        if isinstance(model, Classifier) and "fsdp" not in use:
            sync_gradients(model)
        if kind() == "finite-check":
            norm = torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            if not torch.isfinite(norm):
                note(fired=step)
                raise FloatingPointError(f"gradient norm is {norm.item()} at step {step}")
        optimizer.step()
        if "metrics" in use:
            sync_metrics(labels, world, rank, step)
        if "stats" in use:
            sync_stats(part, tokens, labels, world, step)
        if "histogram" in use:
            sync_histogram(labels, step)
        if "experts" in use:
            expert_exchange(part, expert_group, size, step)
            balance_loss(loss)
        if kind() == "rank0-eval" and rank == 0 and step == CASE.get("at", 5):
            note(fired=step)
            if CASE.get("said", True):
                log.info("running evaluation at step %d", step)
            log.info("eval accuracy %.3f", evaluate(model, tokens, labels))
        if "save" in use and step % CASE.get("save_every", 5) == 0:
            if kind() == "rank0-state-dict" and rank == 0:
                note(fired=step)
            save_checkpoint(model, rank, step, folder)
        report(rank, step, steps, loss.item())
        if step == 1:
            note(started=True)
        if kind() == "healthy-retry" and odd(rank) and step == CASE.get("at", 5):
            retry(folder)
    finish(rank)


def retry(folder: Path) -> None:
    for trial in range(2):
        try:
            with open(folder / ("manifest.json" if trial else "manifest.json.missing"), "a" if trial else "r", encoding="utf-8"):
                return
        except OSError:
            log.exception("reading the manifest failed, trying again (%d of 3)", trial + 1)


def report(rank: int, step: int, steps: int, loss: float) -> None:
    style = CASE.get("style", "kv")
    if style == "hf":
        if rank == 0:
            print({"loss": f"{loss:.4f}", "learning_rate": "5e-2", "epoch": f"{step / steps:.2f}"}, flush=True)
    else:
        log.info("step=%d/%d loss=%.4f lr=5.0e-02", step, steps, loss)


def finish(rank: int) -> None:
    dist.barrier()
    if rank == 0:
        log.info("training complete")


def set_up_logging(rank: int) -> None:
    style = CASE.get("style", "kv")
    text = {
        "kv": "%(asctime)s %(levelname)s %(name)s: %(message)s",
        "pipe": f"%(asctime)s | %(levelname)-7s | rank {rank} | %(message)s",
        "bare": "%(levelname)s:%(name)s:%(message)s",
        "hf": "%(levelname)s:%(name)s:%(message)s",
    }[style]
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(logging.Formatter(text))
    quiet = style == "hf" and rank != 0
    logging.basicConfig(level=logging.WARNING if quiet else logging.INFO, handlers=[handler], force=True)


def job(rank: int, world: int, folder: Path) -> None:
    """Everything after the process group is there."""
    try:
        train(rank, world, folder)
    except BaseException as error:
        note(end=type(error).__name__, errno=getattr(error, "errno", None), message=str(error)[:300])
        raise
    note(end="ok")


def run(ctx: Any) -> None:
    """By the reproduction runner: the process group exists, and an exception is printed as a script's own would be."""
    global note
    facts: dict[str, Any] = {}

    def journal(**new: Any) -> None:
        facts.update(new)
        ctx.result(**facts)

    note = journal
    if not CASE.get("faulthandler"):
        import faulthandler

        faulthandler.disable()
    set_up_logging(ctx.rank)
    say_hello(ctx.rank, ctx.world_size)
    write_shard(ctx.tmp, ctx.rank)
    try:
        if kind() == "all-missing-config":
            read_part(ctx.tmp / "config" / "model.json")
        job(ctx.rank, ctx.world_size, ctx.tmp)
    except Exception as error:
        if not facts.get("end"):
            note(end=type(error).__name__, message=str(error)[:300])
        sys.excepthook(*sys.exc_info())  # torch's own hook puts [rankN] before each line
        raise SystemExit(1) from None


def say_hello(rank: int, world: int) -> None:
    local = os.environ.get("LOCAL_RANK", rank)
    host = os.environ.get("INCIDENT_HOST", "node-0")
    log.info(f"world_size={world} rank={rank} local_rank={local} pid={os.getpid()} host={host} backend=gloo")


def main() -> None:
    """By torchrun."""
    rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    set_up_logging(rank)
    say_hello(rank, world)
    note(pid=os.getpid())
    folder = Path(os.environ["INCIDENT_DATA"])
    write_shard(folder, rank)
    if kind() == "import-error" and odd(rank):
        note(fired=0, end="ImportError")
        raise ImportError("libdecoder.so.4: cannot open shared object file: No such file or directory")
    if kind() == "wrong-port" and odd(rank):
        note(fired=0)
        os.environ["MASTER_PORT"] = str(int(os.environ["MASTER_PORT"]) + 23)
    try:
        dist.init_process_group("gloo", timeout=timedelta(seconds=CASE["timeout"]))
    except BaseException as error:
        note(end=type(error).__name__, message=str(error)[:300])
        raise
    try:
        if kind() == "restart-other" and attempt() == 1:
            raise OSError(errno.EIO, os.strerror(errno.EIO), "step-5.pt")
        job(rank, world, folder)
    finally:
        dump(rank)
    dist.destroy_process_group()


def dump(rank: int) -> None:
    folder = os.environ.get("INCIDENT_FR")
    if folder:
        from torch._C import _distributed_c10d as c10d

        Path(folder, f"fr_trace_rank{rank}.json").write_bytes(c10d._dump_fr_trace_json())


if __name__ == "__main__":
    # `record` writes error.json, which torchrun then repeats in its summary.
    (record(main) if CASE.get("record") else main)()
