"""An id is larger than the table it is looked up in.

A tiny language model is trained on tokenized text. Variant `token`: three special tokens were added to the
tokenizer, and the table still has the size of the pretrained config. Variant `position`: every token is in
the table, one document is longer than the table of positions. The first batch that holds such an id ends the run.
"""

import torch
import torch.nn.functional as F
from torch import nn

VARIANTS = ("token", "position")
STEPS, BATCH, WIDTH = 24, 4, 16
CONFIG = {"vocab_size": 96, "max_positions": 32}
BAD_STEP = 9


class Corpus:
    """Batches of token ids, as a dataset tokenized beforehand holds them."""

    def __init__(self, variant: str, seed: int) -> None:
        self.added = 3 if variant == "token" else 0
        generator = torch.Generator().manual_seed(seed)
        self.batches = []
        for step in range(STEPS):
            length = 40 if variant == "position" and step == BAD_STEP else 24
            ids = torch.randint(0, CONFIG["vocab_size"], (BATCH, length), generator=generator)
            if variant == "token" and step >= BAD_STEP:
                ids[:, -1] = CONFIG["vocab_size"] + step % 3
            self.batches.append(ids)

    @property
    def tokens(self) -> int:
        return CONFIG["vocab_size"] + self.added

    @property
    def longest(self) -> int:
        return max(ids.shape[1] for ids in self.batches)


# region broken
def build(corpus: Corpus) -> nn.Module:
    """Sizes from the config of the checkpoint; nobody asks the data."""
    return TinyLM(CONFIG["vocab_size"], CONFIG["max_positions"])
# endregion


# region fixed
def build_for_data(corpus: Corpus) -> nn.Module:
    """Both tables are at least as large as what will be looked up in them, and the first batch proves it."""
    model = TinyLM(max(CONFIG["vocab_size"], corpus.tokens), max(CONFIG["max_positions"], corpus.longest))
    for ids in corpus.batches:
        low, high = int(ids.min()), int(ids.max())
        if low < 0 or high >= model.tokens.num_embeddings or ids.shape[1] > model.positions.num_embeddings:
            raise ValueError(f"ids {low} to {high}, length {ids.shape[1]}: larger than the model's tables")
    return model
# endregion


class TinyLM(nn.Module):
    def __init__(self, vocab_size: int, max_positions: int) -> None:
        super().__init__()
        self.tokens = nn.Embedding(vocab_size, WIDTH)
        self.positions = nn.Embedding(max_positions, WIDTH)
        self.head = nn.Linear(WIDTH, vocab_size)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        where = torch.arange(ids.shape[1], device=ids.device)
        return self.head(self.tokens(ids) + self.positions(where))


def run(ctx):
    torch.manual_seed(ctx.seed)
    corpus = Corpus(ctx.variant, ctx.seed)
    ctx.workload(steps=STEPS, shapes=[list(ids.shape) for ids in corpus.batches], tokens=corpus.tokens, bad_step=BAD_STEP)
    model = (build_for_data if ctx.fixed else build)(corpus).to(ctx.device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    print(f"tokenizer has {corpus.tokens} entries, tables: {model.tokens.num_embeddings} tokens, "
          f"{model.positions.num_embeddings} positions")
    done = 0
    for step, ids in enumerate(corpus.batches):
        ids = ids.to(ctx.device)
        logits = model(ids)
        loss = F.cross_entropy(logits[:, :-1].flatten(0, 1), ids[:, 1:].flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        print(f"step={step} loss={loss.item():.4f}")
        done += 1
        ctx.result(steps=done, loss=loss.item())
    print(f"training finished after {done} steps")


def check(out):
    assert out.results["steps"] == STEPS, f"{out.results['steps']} of {STEPS} steps were done"
    assert out.results["loss"] < 5.5, f"final loss is {out.results['loss']}"
