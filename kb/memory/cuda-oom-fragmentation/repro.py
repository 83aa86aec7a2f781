"""Out of memory by fragmentation: enough memory is free, but in pieces too small for the request.

A small causal transformer is really trained on CPU, on batches padded to their longest sample. A dispatch mode
hands the size of every new storage (times 64, so that it looks like a GPU's) to a Python model of PyTorch's
CUDA caching allocator. The model keeps a causal mask for every length it has met; each of these long-lived
tensors is cut from a large cached block, and from then on that block's segment can neither be returned
to the driver nor serve a request of its full size.
"""

import bisect
import os
import weakref

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

VOCAB, WIDTH, HEADS, LAYERS, BATCH = 64, 64, 4, 4, 16
LENGTHS = [53, 60, 106, 90, 87, 102, 43, 100, 45, 79, 118, 115]
SCALE = 64
MIB = 2**20
TOTAL = 4096 * MIB


# region broken
def configure() -> None:
    """The allocator as it comes: one segment from the driver per large request."""
    os.environ.pop("PYTORCH_CUDA_ALLOC_CONF", None)
# endregion


# region fixed
def configure_expandable() -> None:
    """Segments that grow and shrink page by page; call before the first CUDA allocation."""
    os.environ["PYTORCH_CUDA_ALLOC_CONF"] = "expandable_segments:True"
# endregion


class Allocator:
    """The rules of c10/cuda/CUDACachingAllocator.cpp (torch 2.10), for one stream, sizes only.

    Kept: rounding, small and large pool, 2 MiB, 20 MiB and multiples of 2 MiB as segment sizes, best fit, splitting,
    merging, release of wholly free segments before giving up; expandable segments of 2 and 20 MiB pages.
    Left out: streams, graphs, events, a context's own memory, other processes.
    """

    def __init__(self, total: int, expandable: bool) -> None:
        self.total, self.expandable = total, expandable
        self.reserved, self.allocated, self.peak_reserved = 0, 0, 0
        self.free = {True: [], False: []}  # small pool? → sorted [size, serial, block]
        self.serial = 0

    def malloc(self, asked: int) -> "Block":
        size = max(512, -(-asked // 512) * 512)
        small = size <= MIB
        block = self.best_fit(size, small)
        if block is None:
            wanted = 2 * MIB if small else 20 * MIB if size < 10 * MIB else -(-size // (2 * MIB)) * 2 * MIB
            block = self.grow(size, small) if self.expandable else self.segment(wanted, small)
            if block is None:
                self.release()
                block = self.best_fit(size, small) or (
                    self.grow(size, small) if self.expandable else self.segment(wanted, small))
            if block is None:
                raise torch.OutOfMemoryError(self.message(size if self.expandable else wanted))
        rest = block.size - size
        if rest >= 512 if small or self.expandable else rest > MIB:
            block.size = size
            block.next = Block(rest, small, block, block.next)
            if block.next.next:
                block.next.next.previous = block.next
            self.put(block.next)
        block.used = True
        self.allocated += block.size
        return block

    def best_fit(self, size: int, small: bool) -> "Block | None":
        blocks = self.free[small]
        index = bisect.bisect_left(blocks, (size, -1))
        return blocks.pop(index)[2] if index < len(blocks) else None

    def segment(self, size: int, small: bool) -> "Block | None":
        if self.reserved + size > self.total:
            return None
        self.reserve(size)
        return Block(size, small)

    def grow(self, size: int, small: bool) -> "Block | None":
        """Maps as many pages as are missing behind the last block of the pool's one segment."""
        page = 2 * MIB if small else 20 * MIB
        last = self.last.get(small) if hasattr(self, "last") else None
        while last and last.next:
            last = last.next
        tail = last.size if last and not last.used else 0
        pages = -(-(size - tail) // page)
        if self.reserved + pages * page > self.total:
            return None
        self.reserve(pages * page)
        self.last = getattr(self, "last", {})
        if tail:
            self.take(last)
            last.size += pages * page
            return last
        block = Block(pages * page, small, last)
        if last:
            last.next = block
        self.last.setdefault(small, block)
        return block

    def reserve(self, size: int) -> None:
        self.reserved += size
        self.peak_reserved = max(self.peak_reserved, self.reserved)

    def release(self) -> None:
        """Gives wholly free segments (expandable: wholly free pages) back to the driver."""
        for small, blocks in self.free.items():
            for _, _, block in list(blocks):
                if self.expandable:
                    page = 2 * MIB if small else 20 * MIB
                    whole = block.size // page * page - (page if block.size % page else 0)
                    if whole > 0 and block.previous and block.next:
                        self.take(block)
                        block.size -= whole
                        self.reserved -= whole
                        self.put(block)
                elif not block.previous and not block.next:
                    self.take(block)
                    self.reserved -= block.size

    def release_block(self, block: "Block") -> None:
        block.used = False
        self.allocated -= block.size
        for other in (block.previous, block.next):
            if other and not other.used:
                self.take(other)
        if block.next and not block.next.used:
            block.size += block.next.size
            block.next = block.next.next
            if block.next:
                block.next.previous = block
        if block.previous and not block.previous.used:
            before = block.previous
            before.size += block.size
            before.next = block.next
            if before.next:
                before.next.previous = before
            block = before
        self.put(block)

    def put(self, block: "Block") -> None:
        self.serial += 1
        block.serial = self.serial
        bisect.insort(self.free[block.small], (block.size, block.serial, block))

    def take(self, block: "Block") -> None:
        blocks = self.free[block.small]
        blocks.pop(bisect.bisect_left(blocks, (block.size, block.serial)))

    def message(self, wanted: int) -> str:
        return (f"CUDA out of memory. Tried to allocate {show(wanted)}. GPU 0 has a total capacity of "
                f"{show(self.total)} of which {show(self.total - self.reserved)} is free. Including non-PyTorch "
                f"memory, this process has {show(self.reserved)} memory in use. Of the allocated memory "
                f"{show(self.allocated)} is allocated by PyTorch, and {show(self.reserved - self.allocated)} is "
                "reserved by PyTorch but unallocated. If reserved but unallocated memory is large try setting "
                "PYTORCH_ALLOC_CONF=expandable_segments:True to avoid fragmentation.  See documentation for "
                "Memory Management  (https://pytorch.org/docs/stable/notes/cuda.html#environment-variables)")


class Block:
    def __init__(self, size, small, previous=None, following=None) -> None:
        self.size, self.small, self.previous, self.next = size, small, previous, following
        self.used, self.serial = False, 0


class Card(TorchDispatchMode):
    """Tells the allocator of every storage that an operation returns, and of its end."""

    def __init__(self, allocator: Allocator) -> None:
        super().__init__()
        self.allocator, self.blocks = allocator, {}

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        result = func(*args, **(kwargs or {}))
        for tensor in tree_leaves(result):
            if isinstance(tensor, torch.Tensor):
                storage = tensor.untyped_storage()
                if storage._cdata not in self.blocks and storage.nbytes():
                    self.blocks[storage._cdata] = self.allocator.malloc(storage.nbytes() * SCALE)
                    weakref.finalize(storage, self.end, storage._cdata)
        return result

    def end(self, key: int) -> None:
        self.allocator.release_block(self.blocks.pop(key))




def show(size: int) -> str:
    return f"{size / 2**30:.2f} GiB" if size >= 2**30 else f"{size / MIB:.2f} MiB" if size >= MIB else f"{size / 1024:.2f} KiB" if size >= 1024 else f"{size} bytes"


class Layer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.qkv, self.out = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.up, self.down = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, x: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        batch, length, _ = x.shape
        q, k, v = self.qkv(self.norm1(x)).view(batch, length, 3, HEADS, -1).permute(2, 0, 3, 1, 4)
        y = (q @ k.transpose(-2, -1) * 0.25 + mask).softmax(-1) @ v
        x = x + self.out(y.transpose(1, 2).reshape(batch, length, WIDTH))
        return x + self.down(F.gelu(self.up(self.norm2(x))))


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embed, self.head = nn.Embedding(VOCAB, WIDTH), nn.Linear(WIDTH, VOCAB)
        self.layers = nn.ModuleList(Layer() for _ in range(LAYERS))
        self.masks: dict[tuple[int, int], torch.Tensor] = {}

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        x, length = self.embed(tokens), tokens.shape[1]
        for number, layer in enumerate(self.layers):
            if (number, length) not in self.masks:  # long-lived, made in the middle of forward
                self.masks[number, length] = torch.full((HEADS, length, length), -1e9).triu(1)
            x = layer(x, self.masks[number, length])
        return self.head(x)


def run(ctx):
    ctx.workload(steps=len(LENGTHS), lengths=LENGTHS, batch=BATCH, width=WIDTH, layers=LAYERS, total=TOTAL)
    configure_expandable() if ctx.fixed else configure()
    expandable = "expandable_segments:True" in os.environ.get("PYTORCH_CUDA_ALLOC_CONF", "")
    generator = torch.Generator().manual_seed(ctx.seed)
    allocator, losses = Allocator(TOTAL, expandable), []
    with Card(allocator):
        model = Model()
        optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
        for step, length in enumerate(LENGTHS, 1):
            tokens = (torch.arange(length + 1) * 5 + torch.randint(VOCAB, (BATCH, 1), generator=generator)) % VOCAB
            loss = F.cross_entropy(model(tokens[:, :-1]).flatten(0, 1), tokens[:, 1:].flatten())
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            losses.append(loss.item())
            print(f"step={step} loss={losses[-1]:.4f} length={length} memory_allocated_mib={allocator.allocated / MIB:.0f} "
                  f"memory_reserved_mib={allocator.reserved / MIB:.0f}")
            ctx.result(steps=step, losses=losses, reserved_mib=allocator.reserved / MIB,
                       peak_reserved_mib=allocator.peak_reserved / MIB)
            del loss
    print(f"training finished after {len(losses)} steps")


def check(out):
    result = out.results
    assert result.get("steps") == len(LENGTHS), f"{result.get('steps', 0)} of {len(LENGTHS)} steps"
    assert result["losses"][-1] < result["losses"][0] - 0.3, f"losses {result['losses']}"
