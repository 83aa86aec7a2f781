"""The hidden state of a recurrent model is carried from one chunk to the next with its graph.

A sequence is trained in chunks (truncated back-propagation through time). The broken half passes the hidden state
on as it is, so the loss of the second chunk reaches back into the graph of the first, whose buffers were freed by
the first backward. The fixed half detaches it: the numbers are carried over, the graph is not.
"""

import torch
import torch.nn.functional as F
from torch import nn

CHUNKS, LENGTH, BATCH, WIDTH = 16, 8, 4, 8


# region broken
def carry(state):
    return state
# endregion


# region fixed
def carry_detached(state):
    """Same numbers, no history."""
    return tuple(s.detach() for s in state)
# endregion


def run(ctx):
    torch.manual_seed(ctx.seed)
    ctx.workload(chunks=CHUNKS, length=LENGTH, batch=BATCH, width=WIDTH)
    lstm, head = nn.LSTM(1, WIDTH, batch_first=True).to(ctx.device), nn.Linear(WIDTH, 1).to(ctx.device)
    optimizer = torch.optim.Adam([*lstm.parameters(), *head.parameters()], lr=0.02)
    time = torch.arange(CHUNKS * LENGTH + 1) / 5.0
    series = torch.sin(time + torch.arange(BATCH)[:, None]).to(ctx.device)[..., None]
    state = tuple(torch.zeros(1, BATCH, WIDTH, device=ctx.device) for _ in range(2))
    for step in range(CHUNKS):
        at = step * LENGTH
        output, state = lstm(series[:, at:at + LENGTH], state)
        loss = F.mse_loss(head(output), series[:, at + 1:at + LENGTH + 1])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        state = (carry_detached if ctx.fixed else carry)(state)
        print(f"step={step} loss={loss.item():.4f}")
        ctx.result(steps=step + 1, loss=loss.item())
    print(f"training finished after {CHUNKS} steps")


def check(out):
    assert out.results.get("steps") == CHUNKS, f"{out.results.get('steps', 0)} of {CHUNKS} chunks were trained"
    assert out.results["loss"] < 0.5, f"the loss ended at {out.results['loss']}"
