"""A recurrent network meets a long sequence: its gradient is multiplied once per step, and nothing limits the update.

The network must remember the sign of its first input. It learns that on sequences of SHORT steps, where the
recurrent factor of slightly more than one does no harm. From step 80 on every tenth batch holds sequences of LONG steps, all of
them sound data. Their gradient is many thousand times the usual one; one unclipped update throws the weights away.
"""

import torch
import torch.nn.functional as F
from torch import nn

STEPS, SHORT, LONG, FIRST_LONG, WIDTH, BATCH = 200, 20, 160, 80, 24, 128
MAX_NORM, GAIN, LR = 1.0, 1.0, 0.002


# region broken
def limit(parameters) -> torch.Tensor:
    return nn.utils.get_total_norm([p.grad for p in parameters])  # logged, not limited
# endregion


# region fixed
def limit_clipped(parameters) -> torch.Tensor:
    return nn.utils.clip_grad_norm_(parameters, MAX_NORM, error_if_nonfinite=True)  # returns the norm before clipping
# endregion


def run(ctx):
    torch.manual_seed(ctx.seed)
    ctx.workload(steps=STEPS, lengths=[SHORT, LONG], width=WIDTH, batch=BATCH)
    generator = torch.Generator().manual_seed(ctx.seed + 1)
    cell = nn.RNN(2, WIDTH, nonlinearity="relu", batch_first=True)
    with torch.no_grad():
        cell.weight_hh_l0.copy_(GAIN * torch.eye(WIDTH))  # the usual start of a ReLU recurrence
        cell.weight_ih_l0.normal_(0, 0.3, generator=generator)
        cell.bias_hh_l0.zero_()
        cell.bias_ih_l0.zero_()
    cell, head = cell.to(ctx.device), nn.Linear(WIDTH, 2).to(ctx.device)
    parameters = [*cell.parameters(), *head.parameters()]
    optimizer = torch.optim.SGD(parameters, lr=LR, momentum=0.9)

    losses, longest = [], 0.0
    for step in range(STEPS):
        length = LONG if step >= FIRST_LONG and step % 10 == 0 else SHORT
        x = 0.1 * torch.randn(BATCH, length, 2, generator=generator)
        y = torch.randint(2, (BATCH,), generator=generator)
        x[:, 0, 0] = 2.0 * y - 1.0
        y = torch.where(torch.rand(BATCH, generator=generator) < 0.05, 1 - y, y)  # labels are never perfect
        x, y = x.to(ctx.device), y.to(ctx.device)
        early, _ = cell(x[:, :1])
        early.retain_grad()
        _, late = cell(x[:, 1:], early.transpose(0, 1))
        late.retain_grad()
        loss = F.cross_entropy(head(late[0]), y)
        optimizer.zero_grad()
        loss.backward()
        norm = (limit_clipped if ctx.fixed else limit)(parameters).item()
        optimizer.step()
        growth = (early.grad.norm() / late.grad.norm().clamp_min(1e-30)).item()
        if length == SHORT:
            losses.append(loss.item())
        if step % 4 == 0 or length == LONG:
            print(f"step={step} loss={loss.item():.4f} grad_norm={norm:.4g} backprop_growth={growth:.4g} length={length}")
    print(f"training finished after {STEPS} steps")
    ctx.result(before=sum(losses[60:80]) / 20, last=sum(losses[-20:]) / 20)


def check(out):
    result = out.results
    assert result["before"] < 0.35, "it had not learned the task yet"
    assert result["last"] < 0.35, f"loss {result['before']:.4f} before the long batches, {result['last']:.4f} at the end"
