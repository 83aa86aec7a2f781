"""Silent data corruption: one device returns a wrong number now and then, and no error is raised.

Four ranks train data-parallel. Every matrix product goes through the rank's device, and rank 2's device is
simulated to be faulty: in every third product it flips the highest exponent bit but one of one element. The gradients
of all ranks are averaged, so the damage reaches all replicas at once and comparing weights shows nothing. Before
training, every device computes the same fixed canary product. The broken half does not look at
the answers; the fixed half compares them and swaps a device that disagrees with the majority for a spare.
"""

import torch
import torch.distributed as dist
import torch.nn.functional as F

STEPS, BATCH, WIDTH, CLASSES, CANARY_ROUNDS = 30, 32, 16, 4, 6


class Device:
    """Does the matrix products of one rank; a faulty one flips a bit in every third result."""

    def __init__(self, faulty: bool) -> None:
        self.faulty, self.calls = faulty, 0

    def matmul(self, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        result = a @ b
        self.calls += 1
        if self.faulty and self.calls % 3 == 0:
            with torch.no_grad():
                bits = result.detach().view(torch.int32)
                bits[self.calls % len(bits), 0] ^= 1 << 29  # a flipped exponent bit: times or divided by 2**64
        return result


def canary(device: Device) -> float:
    """The same product of the same numbers on every device: only hardware can make the sums differ."""
    generator = torch.Generator().manual_seed(0)
    a, b = (torch.rand(32, 32, generator=generator) for _ in range(2))
    return device.matmul(a, b).double().sum().item()


# region broken
def choose_device(mine: Device, spare: Device) -> Device:
    """Trains on the device it was given."""
    for test in range(CANARY_ROUNDS):
        print(f"step={test} canary_sum={canary(mine):.9g}")
    return mine
# endregion


# region fixed
def choose_healthy_device(mine: Device, spare: Device) -> Device:
    """Compares the canaries of all ranks before the first step; the minority is replaced."""
    chosen = mine
    for _ in range(CANARY_ROUNDS):
        sums = [None] * dist.get_world_size()
        dist.all_gather_object(sums, canary(mine))
        usual = max(sums, key=sums.count)
        if sums[dist.get_rank()] != usual:
            chosen = spare
    if chosen is spare:
        print("the canary of this device disagrees with the majority: it is taken out, the spare takes over")
    for test in range(CANARY_ROUNDS):
        print(f"step={test} canary_sum={canary(chosen):.9g}")
    return chosen
# endregion


def run(ctx):
    ctx.workload(steps=STEPS, batch=BATCH, width=WIDTH, classes=CLASSES, canary_rounds=CANARY_ROUNDS)
    mine, spare = Device(faulty=ctx.rank == ctx.guilty), Device(faulty=False)
    device = (choose_healthy_device if ctx.fixed else choose_device)(mine, spare)

    generator = torch.Generator().manual_seed(ctx.seed)  # the same weights on every rank
    truth = torch.randn(WIDTH, CLASSES, generator=generator)
    weights = [torch.randn(WIDTH, 32, generator=generator) / 4, torch.randn(32, CLASSES, generator=generator) / 6]
    for w in weights:
        w.requires_grad_()
    shard = torch.Generator().manual_seed(ctx.seed + 1 + ctx.rank)
    for step in range(STEPS):
        x = torch.randn(BATCH, WIDTH, generator=shard)
        logits = device.matmul(torch.relu(device.matmul(x, weights[0])), weights[1])
        loss = F.cross_entropy(logits, (x @ truth).argmax(1))
        gradients = torch.autograd.grad(loss, weights)
        with torch.no_grad():
            for w, g in zip(weights, gradients, strict=True):
                dist.all_reduce(g)
                w -= 0.5 * g / ctx.world_size
        if step % 3 == 0 or step == STEPS - 1:
            total = sum(w.detach().double().sum().item() for w in weights)
            print(f"step={step + CANARY_ROUNDS} loss={loss.item():.4f} param_sum={total:.9g}")
    ctx.result(loss=loss.item(), param_sum=total, disagreeing=device.faulty)
    dist.barrier()
    print(f"training finished after {STEPS} steps")


def check(out):
    assert len(out.ranks) == 4 and all(r.ok for r in out.ranks), "a rank did not finish"
    assert not any(r.results["disagreeing"] for r in out.ranks), "a faulty device took part"
    assert all(r.results["loss"] < 1.0 for r in out.ranks), "the loss did not fall"
    assert len({r.results["param_sum"] for r in out.ranks}) == 1, "replicas differ"
