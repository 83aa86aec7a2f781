"""A job that is preempted three times an epoch starts its data from the beginning each time.

Weights, optimizer and step counter are restored, the position in the data is not. Variant same_order: the
loader is seeded as at the start, so each session sees the same first batches. Variant reshuffled: each
session shuffles anew; some samples come several times, others not at all.
"""

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, Sampler, TensorDataset

VARIANTS = ("same_order", "reshuffled")
SAMPLES, BATCH, SESSION = 1024, 8, 36
STEPS = SAMPLES // BATCH  # one epoch


# region broken
class Shuffled(Sampler):
    """A fresh permutation, from its start."""

    def __init__(self, count: int, seed: int) -> None:
        self.count, self.seed = count, seed

    def __iter__(self):
        generator = torch.Generator().manual_seed(self.seed)
        yield from torch.randperm(self.count, generator=generator).tolist()

    def state(self, consumed: int) -> dict:
        return {}

    def load(self, state: dict) -> None:
        pass
# endregion


# region fixed
class ResumableShuffled(Sampler):
    """The permutation is a function of the saved seed and goes on where it was left."""

    def __init__(self, count: int, seed: int) -> None:
        self.count, self.seed, self.start = count, seed, 0

    def __iter__(self):
        generator = torch.Generator().manual_seed(self.seed)
        yield from torch.randperm(self.count, generator=generator).tolist()[self.start:]

    def state(self, consumed: int) -> dict:
        """`consumed` is what the training loop used, not what workers have fetched ahead."""
        return {"seed": self.seed, "start": self.start + consumed}

    def load(self, state: dict) -> None:
        self.seed, self.start = state["seed"], state["start"]
# endregion


def run(ctx):
    ctx.workload(steps=STEPS, samples=SAMPLES, batch=BATCH, session=SESSION)
    generator = torch.Generator().manual_seed(ctx.seed)
    rule = torch.randn(24, generator=generator)
    features = torch.randn(2 * SAMPLES, 24, generator=generator)
    noise = 0.5 * torch.randn(2 * SAMPLES, generator=generator)
    labels = ((features @ rule) / 5 + noise > 0).long()
    data = TensorDataset(torch.arange(SAMPLES), features[:SAMPLES], labels[:SAMPLES])
    seen = torch.zeros(SAMPLES, dtype=torch.long)
    path, step, session = ctx.tmp / "last.pt", 0, 0

    while step < STEPS:  # each turn is a process of its own in a real job
        torch.manual_seed(ctx.seed)
        model = nn.Sequential(nn.Linear(24, 128), nn.ReLU(), nn.Linear(128, 2)).to(ctx.device)
        optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
        order = ctx.seed if ctx.variant == "same_order" else ctx.seed + session
        sampler = (ResumableShuffled if ctx.fixed else Shuffled)(SAMPLES, order)
        if path.exists():
            checkpoint = torch.load(path, weights_only=True)
            model.load_state_dict(checkpoint["model"])
            optimizer.load_state_dict(checkpoint["optimizer"])
            sampler.load(checkpoint["sampler"])
            step = checkpoint["step"]
            print(f"preempted; session {session} goes on from step {step}")
        start = getattr(sampler, "start", 0)
        for batch, (index, x, y) in enumerate(DataLoader(data, batch_size=BATCH, sampler=sampler)):
            seen[index] += 1
            loss = F.cross_entropy(model(x.to(ctx.device)), y.to(ctx.device))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            step += 1
            if step % 4 == 0:
                print(f"step={step} loss={loss.item():.4f} samples_seen={start + (batch + 1) * BATCH}")
            if step == STEPS or batch + 1 == SESSION:
                break
        torch.save({"step": step, "model": model.state_dict(), "optimizer": optimizer.state_dict(),
                    "sampler": sampler.state((batch + 1) * BATCH)}, path)
        session += 1

    with torch.no_grad():
        held = F.cross_entropy(model(features[SAMPLES:].to(ctx.device)), labels[SAMPLES:].to(ctx.device)).item()
    print(f"step={step} eval_loss={held:.4f} unique_samples={(seen > 0).sum().item()} of {SAMPLES}")
    print(f"training finished after {step} steps")
    ctx.result(unique=(seen > 0).sum().item(), most=seen.max().item(), held_out=held, sessions=session)


def check(out):
    result = out.results
    assert result["sessions"] == -(-STEPS // SESSION)
    assert result["unique"] == SAMPLES, f"{result['unique']} of {SAMPLES} samples were seen in the epoch"
    assert result["most"] == 1, f"a sample was seen {result['most']} times"
    assert result["held_out"] < 0.45, f"held-out loss {result['held_out']}"
