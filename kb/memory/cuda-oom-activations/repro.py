"""Out of memory from activations: what forward keeps for backward outgrows the card.

A small causal transformer on CPU with real tensors, under a dispatch mode that counts the bytes of every
storage an operation returns and refuses the one that would pass the budget. That budget stands in for a
GPU's memory. Variant batch: the configured batch does not fit, the first step fails. Variant longest:
batches are padded to their longest sample; all fit until one with a long sample arrives.
"""

import weakref

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from torch.utils.checkpoint import checkpoint

VARIANTS = ("batch", "longest")
VOCAB, WIDTH, HEADS, LAYERS = 64, 64, 4, 6
BUDGET = 64 * 2**20
LENGTHS = {"batch": [128] * 6, "longest": [64, 56, 72, 64, 128, 64]}
BATCH = 32


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.qkv, self.out = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.up, self.down = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        batch, length, _ = x.shape
        q, k, v = self.qkv(self.norm1(x)).view(batch, length, 3, HEADS, -1).permute(2, 0, 3, 1, 4)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(y.transpose(1, 2).reshape(batch, length, WIDTH))
        return x + self.down(F.gelu(self.up(self.norm2(x))))


# region broken
def through(blocks: nn.ModuleList, x: torch.Tensor) -> torch.Tensor:
    """Every block keeps its intermediate results until backward has passed it."""
    for block in blocks:
        x = block(x)
    return x
# endregion


# region fixed
def through_checkpointed(blocks: nn.ModuleList, x: torch.Tensor) -> torch.Tensor:
    """Each block keeps its input only, and is computed again when backward arrives there."""
    for block in blocks:
        x = checkpoint(block, x, use_reentrant=False)
    return x
# endregion


class Model(nn.Module):
    def __init__(self, through_blocks) -> None:
        super().__init__()
        self.embed, self.head = nn.Embedding(VOCAB, WIDTH), nn.Linear(WIDTH, VOCAB)
        self.blocks = nn.ModuleList(Block() for _ in range(LAYERS))
        self.through_blocks = through_blocks

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        return self.head(self.through_blocks(self.blocks, self.embed(tokens)))


class Card(TorchDispatchMode):
    """Stand-in for a GPU's memory: counts live storages, refuses what does not fit.

    The message is put together as c10/cuda/CUDACachingAllocator.cpp does (text of torch 2.10). Not modelled:
    rounding, cached blocks, cuBLAS workspaces, scratch memory inside an operation, other processes.
    """

    def __init__(self, total: int) -> None:
        super().__init__()
        self.total, self.live, self.peak, self.sizes = total, 0, 0, {}

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        result = func(*args, **(kwargs or {}))
        for tensor in tree_leaves(result):
            if isinstance(tensor, torch.Tensor):
                self.account(tensor.untyped_storage())
        return result

    def account(self, storage) -> None:
        key, size = storage._cdata, storage.nbytes()
        if key in self.sizes:
            return
        if self.live + size > self.total:
            raise torch.OutOfMemoryError(
                f"CUDA out of memory. Tried to allocate {show(size)}. GPU 0 has a total capacity of "
                f"{show(self.total)} of which {show(self.total - self.live)} is free. Including non-PyTorch "
                f"memory, this process has {show(self.live)} memory in use. Of the allocated memory "
                f"{show(self.live)} is allocated by PyTorch, and {show(0)} is reserved by PyTorch but "
                "unallocated. If reserved but unallocated memory is large try setting "
                "PYTORCH_ALLOC_CONF=expandable_segments:True to avoid fragmentation.  See documentation for "
                "Memory Management  (https://pytorch.org/docs/stable/notes/cuda.html#environment-variables)")
        self.sizes[key] = size
        self.live += size
        self.peak = max(self.peak, self.live)
        weakref.finalize(storage, self.free, key)

    def free(self, key: int) -> None:
        self.live -= self.sizes.pop(key)


def show(size: int) -> str:
    return f"{size} bytes" if size < 1024 else f"{size / 2**10:.2f} KiB" if size < 2**20 else f"{size / 2**20:.2f} MiB"


def run(ctx):
    lengths = LENGTHS[ctx.variant]
    ctx.workload(steps=len(lengths), batch=BATCH, lengths=lengths, budget=BUDGET, width=WIDTH, layers=LAYERS)
    generator = torch.Generator().manual_seed(ctx.seed)
    losses, card = [], Card(BUDGET)
    with card:
        model = Model(through_checkpointed if ctx.fixed else through)
        optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
        ctx.result(weights_mib=card.live / 2**20)
        for step, length in enumerate(lengths, 1):
            tokens = (torch.arange(length + 1) * 5 + torch.randint(VOCAB, (BATCH, 1), generator=generator)) % VOCAB
            card.peak = card.live
            loss = F.cross_entropy(model(tokens[:, :-1]).flatten(0, 1), tokens[:, 1:].flatten())
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            losses.append(loss.item())
            print(f"step={step} loss={losses[-1]:.4f} length={length} max_memory_mib={card.peak / 2**20:.1f}")
            ctx.result(steps=step, losses=losses, peak_mib=card.peak / 2**20, static_mib=card.live / 2**20)
            del loss
    print(f"training finished after {len(losses)} steps")


def check(out):
    result = out.results
    assert result["steps"] == 6, f"{result['steps']} of 6 steps"
    assert result["losses"][-1] < result["losses"][0] - 0.3, f"losses {result['losses']}"
