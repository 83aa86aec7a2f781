"""The last evaluation batch is shorter on one rank, and all_gather is called with tensors of unequal sizes.

Three ranks share 46 samples: two get 16, one 14.
"""

import torch
import torch.distributed as dist
from torch import nn

SAMPLES, BATCH, FEATURES, STEPS = 46, 8, 6, 3


# region broken
def gather_predictions(mine):
    """Predictions of all ranks, in order of rank."""
    parts = [torch.empty_like(mine) for _ in range(dist.get_world_size())]
    dist.all_gather(parts, mine)
    return torch.cat(parts)
# endregion


# region fixed
def gather_predictions_of_unequal_length(mine):
    """The same for shards of unequal length: exchange lengths, pad to the longest, cut."""
    lengths = [torch.zeros(1, dtype=torch.int64, device=mine.device) for _ in range(dist.get_world_size())]
    dist.all_gather(lengths, torch.tensor([len(mine)], device=mine.device))
    longest = max(int(n) for n in lengths)
    padded = torch.cat([mine, mine.new_zeros(longest - len(mine))])
    parts = [torch.empty_like(padded) for _ in lengths]
    dist.all_gather(parts, padded)
    return torch.cat([part[: int(n)] for part, n in zip(parts, lengths, strict=True)])
# endregion


def run(ctx):
    torch.manual_seed(ctx.seed)
    ctx.workload(steps=STEPS, samples=SAMPLES, batch=BATCH, ranks=ctx.world_size)
    gather = gather_predictions_of_unequal_length if ctx.fixed else gather_predictions
    model = nn.Linear(FEATURES, 1).to(ctx.device)
    for step in range(1, STEPS + 1):
        x = torch.randn(BATCH, FEATURES, generator=torch.Generator().manual_seed(10 * step + ctx.rank)).to(ctx.device)
        loss = (model(x).squeeze(-1) - x[:, 0]).square().mean()
        model.zero_grad()
        loss.backward()
        for p in model.parameters():
            dist.all_reduce(p.grad)
            p.data -= 0.1 * p.grad / ctx.world_size
        print(f"step={step}/{STEPS} loss={loss.item():.4f}", flush=True)
    data = torch.randn(SAMPLES, FEATURES, generator=torch.Generator().manual_seed(1))
    order = [(ctx.guilty + 1 + i) % ctx.world_size for i in range(ctx.world_size)]  # the guilty rank gets the rest
    shard = data[order.index(ctx.rank) * 16 :][:16].to(ctx.device)
    print(f"evaluating {len(shard)} samples", flush=True)
    with torch.no_grad():
        predictions = gather(model(shard).squeeze(-1))
        expected = model(data.to(ctx.device)).squeeze(-1)
    ctx.result(gathered=len(predictions), total=predictions.double().sum().item(), expected=expected.double().sum().item())
    dist.barrier()
    print(f"training finished after {STEPS} steps, {len(predictions)} samples evaluated")


def check(out):
    assert all(r.ok for r in out.ranks), "a rank did not finish"
    for r in out.ranks:
        assert r.results["gathered"] == SAMPLES, f"{r.results['gathered']} predictions instead of {SAMPLES}"
        assert abs(r.results["total"] - r.results["expected"]) < 1e-4, "the predictions are not those of the data"
