"""The last batch of the epoch holds one sample, and batch normalization cannot take its variance.

33 samples in batches of 8 leave one over. Batch normalization over features of shape [1, 16] has one value for each
channel. The broken half keeps the last batch; the fixed half drops it while training.
"""

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

SAMPLES, BATCH, WIDTH, EPOCHS = 33, 8, 8, 3


# region broken
def loader(data):
    return DataLoader(data, batch_size=BATCH)
# endregion


# region fixed
def loader_of_full_batches(data):
    """For training only; evaluation mode has no such limit and needs every sample."""
    return DataLoader(data, batch_size=BATCH, drop_last=True)
# endregion


def run(ctx):
    torch.manual_seed(ctx.seed)
    ctx.workload(samples=SAMPLES, batch=BATCH, width=WIDTH, epochs=EPOCHS)
    x = torch.randn(SAMPLES, WIDTH)
    data = TensorDataset(x, x[:, :1])
    model = nn.Sequential(nn.Linear(WIDTH, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Linear(16, 1)).to(ctx.device)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.02)
    step = 0
    for epoch in range(EPOCHS):
        for inputs, wanted in (loader_of_full_batches if ctx.fixed else loader)(data):
            loss = F.mse_loss(model(inputs.to(ctx.device)), wanted.to(ctx.device))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            print(f"epoch={epoch} step={step} batch={len(inputs)} loss={loss.item():.4f}")
            step += 1
            ctx.result(steps=step)
        ctx.result(epochs=epoch + 1)
    with torch.no_grad():
        ctx.result(evaluated=len(model.eval()(x.to(ctx.device))))
    print(f"training finished after {step} steps")


def check(out):
    assert out.results.get("epochs") == EPOCHS, f"stopped after {out.results.get('steps', 0)} steps"
    assert out.results["evaluated"] == SAMPLES, "evaluation lost samples"
