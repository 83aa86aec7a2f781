"""Small tensors from DataLoader workers are kept, and each holds an open file.

Workers send tensors as shared memory, one file descriptor each (the default on Linux). The loop keeps the sample ids of every batch
for a report at the end of the epoch. The limit is set to 96 here, so that it is reached after some tens of batches instead of
about a thousand. The fixed half keeps a copy, which is ordinary memory.
"""

import resource

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, Dataset

SAMPLES, BATCH, WIDTH, LIMIT = 480, 4, 4, 96


class Samples(Dataset):
    def __len__(self):
        return SAMPLES

    def __getitem__(self, index):
        x = torch.randn(WIDTH, generator=torch.Generator().manual_seed(index))
        return x, index


# region broken
def remember(seen, ids):
    seen.append(ids)
# endregion


# region fixed
def remember_copy(seen, ids):
    """A clone lives in the memory of this process; the shared one is closed with the batch."""
    seen.append(ids.clone())
# endregion


def run(ctx):
    torch.manual_seed(ctx.seed)
    torch.multiprocessing.set_sharing_strategy("file_descriptor")
    resource.setrlimit(resource.RLIMIT_NOFILE, (LIMIT, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
    ctx.workload(samples=SAMPLES, batch=BATCH, width=WIDTH, limit=LIMIT)
    model = nn.Linear(WIDTH, 1).to(ctx.device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    seen = []
    for step, (x, ids) in enumerate(DataLoader(Samples(), batch_size=BATCH, num_workers=1)):
        x = x.to(ctx.device)
        loss = F.mse_loss(model(x), x[:, :1])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        (remember_copy if ctx.fixed else remember)(seen, ids)
        if step % 10 == 0:
            print(f"step={step} loss={loss.item():.4f}", flush=True)
        ctx.result(steps=step + 1)
    ctx.result(ids=len(torch.cat(seen)))
    print(f"training finished after {step + 1} steps")


def check(out):
    assert out.results.get("ids") == SAMPLES, f"stopped after {out.results.get('steps', 0)} steps"
