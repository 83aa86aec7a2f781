"""A tensor made inside forward() stays on the CPU while the model is on the GPU.

There is no GPU here: the tensors are torch's fake CUDA tensors, which have shapes, dtypes and a device and no data; torch checks their
devices as it does with real ones. The broken half builds its position ids with torch.arange(n), which means the CPU;
the fixed half builds them on the device of the input.
"""

import torch
import torch.nn.functional as F
from torch import nn
from torch._subclasses.fake_tensor import FakeTensorMode

STEPS, BATCH, LENGTH, WIDTH = 6, 4, 8, 16


# region broken
def positions(ids):
    return torch.arange(ids.shape[1])
# endregion


# region fixed
def positions_on_device(ids):
    return torch.arange(ids.shape[1], device=ids.device)
# endregion


class TinyLM(nn.Module):
    def __init__(self, where):
        super().__init__()
        self.where = where
        self.tokens = nn.Embedding.from_pretrained(torch.empty(64, WIDTH, device="cuda"))
        self.positions = nn.Embedding.from_pretrained(torch.empty(LENGTH, WIDTH, device="cuda"))

    def forward(self, ids):
        return F.linear(self.tokens(ids) + self.positions(self.where(ids)), self.tokens.weight)


def run(ctx):
    ctx.workload(steps=STEPS, batch=BATCH, length=LENGTH, width=WIDTH)
    with FakeTensorMode():
        model = TinyLM(positions_on_device if ctx.fixed else positions)
        ids = torch.zeros(BATCH, LENGTH, dtype=torch.long, device="cuda")
        for step in range(STEPS):
            logits = model(ids)
            print(f"step={step} logits {tuple(logits.shape)} on {logits.device}")
            ctx.result(steps=step + 1, device=logits.device.type)
    print(f"training finished after {STEPS} steps")


def check(out):
    assert out.results.get("steps") == STEPS, f"{out.results.get('steps', 0)} of {STEPS} steps were done"
    assert out.results["device"] == "cuda", "the logits are not on the GPU"
