"""The default collate function meets a batch whose samples are not all of one length.

Token sequences, nearly all of the maximum length, a few shorter. Batches of equal length go through, so some
steps are done before the first mixed batch ends the run. The fixed half pads each batch to its longest sample
and passes a mask, so that padding does not count.
"""

import torch
from torch import nn
from torch.nn.utils.rnn import pad_sequence
from torch.utils.data import DataLoader, Dataset

SAMPLES, BATCH, LENGTH, SHORT, VOCABULARY, WIDTH, CLASSES = 96, 8, 16, 13, 50, 16, 2
SHORT_ONES = (43, 58, 77)


class Sentences(Dataset):
    def __init__(self, seed):
        generator = torch.Generator().manual_seed(seed)
        lengths = [SHORT if index in SHORT_ONES else LENGTH for index in range(SAMPLES)]
        self.tokens = [torch.randint(1, VOCABULARY, (n,), generator=generator) for n in lengths]

    def __len__(self):
        return SAMPLES

    def __getitem__(self, index):
        tokens = self.tokens[index]
        return tokens, int(tokens.float().mean() > VOCABULARY / 2)


# region broken
def loader(dataset):
    return DataLoader(dataset, batch_size=BATCH)
# endregion


# region fixed
def pad(samples):
    """Pads to the longest sample of this batch; token 0 is padding."""
    tokens, labels = zip(*samples, strict=True)
    return pad_sequence(tokens, batch_first=True, padding_value=0), torch.tensor(labels)


def padding_loader(dataset):
    return DataLoader(dataset, batch_size=BATCH, collate_fn=pad)
# endregion


class Classifier(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(VOCABULARY, WIDTH, padding_idx=0)
        self.head = nn.Linear(WIDTH, CLASSES)

    def forward(self, tokens):
        mask = (tokens != 0).unsqueeze(-1)
        return self.head((self.embedding(tokens) * mask).sum(1) / mask.sum(1))


def run(ctx):
    torch.manual_seed(ctx.seed)
    ctx.workload(samples=SAMPLES, batch=BATCH, lengths=[SHORT, LENGTH], epochs=1)
    batches = (padding_loader if ctx.fixed else loader)(Sentences(ctx.seed))
    model = Classifier().to(ctx.device)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.05)
    seen, tokens_seen = 0, 0
    for step, (tokens, labels) in enumerate(batches, 1):
        loss = nn.functional.cross_entropy(model(tokens.to(ctx.device)), labels.to(ctx.device))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        seen += len(labels)
        tokens_seen += int((tokens != 0).sum())
        print(f"step={step} loss={loss.item():.4f}")
    ctx.result(samples=seen, tokens=tokens_seen, loss=loss.item())
    print(f"training finished after {step} steps")


def check(out):
    assert out.ranks[0].ok, f"the run died: {out.ranks[0].exception}"
    assert out.results["samples"] == SAMPLES, "samples were lost"
    assert out.results["tokens"] == SAMPLES * LENGTH - len(SHORT_ONES) * (LENGTH - SHORT), "padding was counted"
