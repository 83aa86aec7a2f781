"""MoE pipeline hang: one rank of one stage skips an all-to-all because of its data.

Four ranks: two pipeline stages of two expert-parallel ranks each (rank = 2 * stage + expert).
Each stage is a residual layer of two experts, one on each rank. In the second micro-batch of the
last step every token of one rank is routed to the expert that this rank itself holds. The broken
layer then takes a short cut past the exchange, so its partner is one exchange short at the end of
the step and waits there; the wait spreads to the other stage through the pipeline. `guilty` chooses
the rank with the one-sided micro-batch.
"""

import datetime

import torch
import torch.distributed as dist
from torch import nn

STEPS, MICRO_BATCHES, TOKENS, WIDTH = 2, 3, 16, 8
TIMEOUT = datetime.timedelta(seconds=1)  # a new_group without timeout= has its own default


class AllToAll(torch.autograd.Function):
    """all_to_all_single with uneven splits; its backward sends the gradients back."""

    @staticmethod
    def forward(ctx, x, send, receive, group):
        ctx.args = send, receive, group
        out = x.new_empty(sum(receive), x.shape[1])
        dist.all_to_all_single(out, x.contiguous(), receive, send, group=group)
        return out

    @staticmethod
    def backward(ctx, grad):
        send, receive, group = ctx.args
        return AllToAll.apply(grad, receive, send, group), None, None, None


# region broken
def dispatch(x, send, group):
    """Tokens sorted by expert go to the rank that holds it; returns them with the counts received."""
    mine = dist.get_rank(group)
    if sum(send) == send[mine]:  # nothing leaves this rank, so there is nothing to exchange
        return x, None
    counts = torch.empty(len(send), dtype=torch.long, device=x.device)
    dist.all_to_all_single(counts, torch.tensor(send, device=x.device), group=group)
    return AllToAll.apply(x, send, counts.tolist(), group), counts.tolist()
# endregion


# region fixed
def dispatch_always(x, send, group):
    """The same, entered by every rank of the group for every micro-batch: a split may be empty."""
    counts = torch.empty(len(send), dtype=torch.long, device=x.device)
    dist.all_to_all_single(counts, torch.tensor(send, device=x.device), group=group)
    return AllToAll.apply(x, send, counts.tolist(), group), counts.tolist()
# endregion


class MoELayer(nn.Module):
    def __init__(self, stage, group, fixed):
        super().__init__()
        self.stage, self.group = stage, group
        self.dispatch = dispatch_always if fixed else dispatch
        self.expert = nn.Linear(WIDTH, WIDTH)
        self.seen = self.exchanges = 0

    def forward(self, x):
        # The gate of a stage reads the channel of that number, which the experts leave alone.
        expert = (x[:, self.stage] > 0).long()
        order = expert.argsort(stable=True)
        send = torch.bincount(expert, minlength=2).tolist()
        tokens, receive = self.dispatch(x[order], send, self.group)
        self.seen += len(tokens)
        self.exchanges += receive is not None
        tokens = torch.tanh(self.expert(tokens))
        if receive is not None:
            tokens = AllToAll.apply(tokens, receive, send, self.group)
        mask = torch.ones(WIDTH, device=x.device).index_fill(0, torch.tensor([0, 1], device=x.device), 0.0)
        return x + (tokens * mask)[order.argsort()]


def micro_batches(step, expert, guilty, device):
    """Tokens of one pipeline; one micro-batch of the guilty rank's pipeline is one-sided."""
    generator = torch.Generator().manual_seed(100 * step + expert)
    batches = []
    for index in range(MICRO_BATCHES):
        tokens = torch.randn(TOKENS, WIDTH, generator=generator)
        tokens[:, :2] = torch.tensor([1.0, -1.0]).repeat(TOKENS // 2)[:, None]
        if index == 1 and guilty % 2 == expert and step == STEPS - 1:
            tokens[:, guilty // 2] = 1.0 if expert else -1.0
        batches.append(tokens.to(device))
    return batches


def run(ctx):
    ctx.workload(steps=STEPS, micro_batches=MICRO_BATCHES, tokens=TOKENS, width=WIDTH, ranks=ctx.world_size)
    stage, expert = divmod(ctx.rank, 2)
    pairs = (0, 1), (2, 3), (0, 2), (1, 3)
    groups = {ranks: dist.new_group(list(ranks), timeout=TIMEOUT) for ranks in pairs}
    experts, pipeline = groups[2 * stage, 2 * stage + 1], groups[expert, expert + 2]
    other = ctx.rank + 2 if stage == 0 else ctx.rank - 2

    torch.manual_seed(ctx.seed + ctx.rank)
    layer = MoELayer(stage, experts, ctx.fixed).to(ctx.device)
    optimizer = torch.optim.SGD(layer.parameters(), lr=0.1)
    losses = []
    for step in range(STEPS):
        optimizer.zero_grad()
        total, kept = torch.zeros((), device=ctx.device), []
        for index, tokens in enumerate(micro_batches(step, expert, ctx.guilty, ctx.device)):
            target = tokens.roll(1, dims=1)
            if stage == 0:
                x = tokens
                y = layer(x)
                dist.send(y.detach(), other, group=pipeline)
            else:
                x = torch.empty(TOKENS, WIDTH, device=ctx.device)
                dist.recv(x, other, group=pipeline)
                x.requires_grad_()
                y = (layer(x) - target)[:, 2:].square().mean()
                total = total + y.detach()
            kept.append((x, y))
            print(f"step={step} micro_batch={index} moe_exchanges={layer.exchanges}")

        # Every rank contributes to the token count of the step before any backward pass starts.
        count = torch.tensor(float(TOKENS * MICRO_BATCHES), device=ctx.device)
        dist.all_reduce(count)

        for x, y in kept:
            if stage == 1:
                y.backward()
                dist.send(x.grad, other, group=pipeline)
            else:
                grad = torch.empty_like(y)
                dist.recv(grad, other, group=pipeline)
                y.backward(grad)
        optimizer.step()
        losses.append(total.item() / MICRO_BATCHES)
        shown = f" loss={losses[-1]:.4f}" if stage == 1 else ""
        print(f"step={step} tokens={int(count)} expert_tokens={layer.seen}{shown}")
    ctx.result(steps=STEPS, stage=stage, expert_tokens=layer.seen, losses=losses)
    dist.barrier()
    print(f"training finished after {STEPS} steps")


def check(out):
    assert len(out.ranks) == 4 and all(r.ok for r in out.ranks), "a rank did not finish"
    sent = STEPS * MICRO_BATCHES * TOKENS * 2
    for stage in (0, 1):
        ranks = [r.results for r in out.ranks if r.results["stage"] == stage]
        assert sum(r["expert_tokens"] for r in ranks) == sent, f"stage {stage} lost tokens: {ranks}"
    for r in out.ranks[2:]:
        first, last = r.results["losses"]
        assert 0 < last < first, f"loss did not fall: {r.results['losses']}"
