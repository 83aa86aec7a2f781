"""An allocation on the CPU is refused: the request is larger than what the process may have.

Token frequencies for a sampling table. The broken half counts them through one-hot vectors of the whole corpus,
64 x 2048 tokens times a vocabulary of 32,000 in int64: 31 GiB in one request, more than the address space that
this process is given (8 GiB; a container or a smaller machine has limits of the same kind). The fixed half
counts without the intermediate tensor.
"""

import torch
import torch.nn.functional as F
from torch import nn

DOCUMENTS, LENGTH, VOCABULARY, WIDTH, STEPS = 64, 2048, 32_000, 16, 5


# region broken
def frequencies(tokens):
    return F.one_hot(tokens.flatten(), VOCABULARY).sum(0)
# endregion


# region fixed
def frequencies_counted(tokens):
    return torch.bincount(tokens.flatten(), minlength=VOCABULARY)
# endregion


def run(ctx):
    torch.manual_seed(ctx.seed)
    ctx.workload(documents=DOCUMENTS, length=LENGTH, vocabulary=VOCABULARY, steps=STEPS)
    tokens = torch.randint(VOCABULARY, (DOCUMENTS, LENGTH))
    print(f"counting {tokens.numel()} tokens of a vocabulary of {VOCABULARY}")
    counts = (frequencies_counted if ctx.fixed else frequencies)(tokens)
    table = (counts.float() + 1).pow(0.75)
    embedding = nn.Embedding(VOCABULARY, WIDTH)
    optimizer = torch.optim.SGD(embedding.parameters(), lr=10.0)
    losses = []
    for step in range(1, STEPS + 1):
        negatives = torch.multinomial(table, 256, replacement=True)
        loss = embedding(negatives).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
        print(f"step={step} loss={loss.item():.4f}")
    ctx.result(counted=int(counts.sum()), losses=losses)
    print(f"training finished after {STEPS} steps")


def check(out):
    assert out.ranks[0].ok, f"the run died: {out.ranks[0].exception}"
    assert out.results["counted"] == DOCUMENTS * LENGTH, "not every token was counted"
    assert len(out.results["losses"]) == STEPS
