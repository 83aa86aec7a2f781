"""One rank prepares the data while the others wait for it in a barrier whose time-out is shorter than the work.

The usual pattern: the main rank tokenizes and writes a cache, everybody meets in a barrier, everybody reads the
cache. Learning and applying byte pairs to a small generated corpus takes seconds of real work here, and the
process group's time-out is half a second: the same proportion as an hour against ten minutes. `guilty` is the
rank that prepares.
"""

import collections
import datetime
import random
import time

import torch
import torch.distributed as dist

DOCUMENTS, WORDS, MERGES = 200, 120, 60


def corpus():
    draw = random.Random(0)
    words = ["".join(draw.choice("abcdefgh") for _ in range(draw.randint(3, 9))) for _ in range(400)]
    return [" ".join(draw.choice(words) for _ in range(WORDS)) for _ in range(DOCUMENTS)]


def merge(symbols, pair):
    out, i = [], 0
    while i < len(symbols):
        both = tuple(symbols[i:i + 2]) == pair
        out.append(symbols[i] + symbols[i + 1] if both else symbols[i])
        i += 2 if both else 1
    return out


def learn(texts):
    """The most frequent pairs of neighbours, one after another."""
    symbols, pairs = list(" ".join(texts)), []
    for _ in range(MERGES):
        pair = collections.Counter(zip(symbols, symbols[1:])).most_common(1)[0][0]
        pairs.append(pair)
        symbols = merge(symbols, pair)
    return pairs


def build(cache):
    """Tokenizes the corpus into a file, with a bar as `datasets` prints it."""
    texts = corpus()
    pairs = learn(texts[:8])
    vocabulary, rows, started = {}, [], time.monotonic()
    for done, text in enumerate(texts, 1):
        symbols = list(text)
        for pair in pairs:
            symbols = merge(symbols, pair)
        rows.append([vocabulary.setdefault(s, len(vocabulary)) for s in symbols])
        if done % 20 == 0:
            spent = time.monotonic() - started
            print(f"Tokenizing corpus: {100 * done // DOCUMENTS:3d}%|{'#' * (10 * done // DOCUMENTS):10s}| {done}/{DOCUMENTS} "
                  f"[{int(spent) // 60:02d}:{int(spent) % 60:02d}<00:00, {done / spent:.2f} examples/s]", flush=True)
    torch.save(rows, cache)


# region broken
def prepare(cache, main):
    if dist.get_rank() == main:
        build(cache)
    dist.barrier()  # the time-out of the training collectives
    return torch.load(cache)
# endregion


# region fixed
def prepare_patiently(cache, main):
    patient = dist.new_group(backend="gloo", timeout=datetime.timedelta(hours=2))
    if dist.get_rank() == main:
        build(cache)
    dist.barrier(group=patient)  # a group for waiting only; training keeps its short time-out
    return torch.load(cache)
# endregion


def run(ctx):
    ctx.workload(documents=DOCUMENTS, words=WORDS, merges=MERGES, ranks=ctx.world_size)
    shared = [str(ctx.tmp / "tokens.pt") if ctx.rank == ctx.guilty else None]
    dist.broadcast_object_list(shared, src=ctx.guilty)
    rows = (prepare_patiently if ctx.fixed else prepare)(shared[0], ctx.guilty)
    tokens = torch.tensor(float(sum(map(len, rows))))
    dist.all_reduce(tokens)
    ctx.result(documents=len(rows), tokens=tokens.item())
    print(f"step=1 documents={len(rows)} tokens_on_all_ranks={int(tokens)}")
    dist.barrier()
    print("training finished after 1 step")


def check(out):
    assert len(out.ranks) >= 3 and all(r.ok for r in out.ranks), "a rank did not finish"
    assert all(r.results["documents"] == DOCUMENTS for r in out.ranks), "a rank read another cache"
    assert len({r.results["tokens"] for r in out.ranks}) == 1 and out.results["tokens"] > 0
