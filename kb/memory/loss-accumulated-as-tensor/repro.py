"""Memory grows because a running loss keeps the autograd graph of every step.

Variant evaluation: the loop has no backward (validation without no_grad), so each loss that is added keeps
all saved activations of its step. Variant training: backward has freed them; the sum keeps the graph's nodes and
what they hold besides saved tensors. Memory is the process's own (VmRSS), on CPU and on CUDA alike.
"""

import gc

import torch
import torch.nn.functional as F
from torch import nn

VARIANTS = ("evaluation", "training")
STEPS = {"evaluation": 90, "training": 180}
DEPTH = {"evaluation": 4, "training": 60}
WIDTH, BATCH, CLASSES = 128, {"evaluation": 256, "training": 32}, 10


# region broken
def add(running_loss, loss: torch.Tensor):
    """The sum is a tensor with a history: it can still be differentiated with respect to every step."""
    return running_loss + loss
# endregion


# region fixed
def add_detached(running_loss, loss: torch.Tensor):
    """The number only; the graph of this step ends here (no synchronisation, unlike .item())."""
    return running_loss + loss.detach()
# endregion


def resident_mib() -> float:
    """Resident memory after handing free heap pages back, so that it says what is held."""
    gc.collect()
    with open("/proc/self/statm") as statm:
        return int(statm.read().split()[1]) * 4096 / 2**20


def graph_nodes(value) -> int:
    """How many autograd nodes hang on a value."""
    todo, seen = [getattr(value, "grad_fn", None)], set()
    while todo:
        node = todo.pop()
        if node is not None and node not in seen:
            seen.add(node)
            todo += [following for following, _ in node.next_functions]
    return len(seen)


def run(ctx):
    torch.manual_seed(ctx.seed)
    steps, depth = STEPS[ctx.variant], DEPTH[ctx.variant]
    batch = BATCH[ctx.variant]
    ctx.workload(steps=steps, depth=depth, width=WIDTH, batch=batch)
    layers = [layer for _ in range(depth) for layer in (nn.Linear(WIDTH, WIDTH), nn.Tanh())]
    model = nn.Sequential(*layers, nn.Linear(WIDTH, CLASSES)).to(ctx.device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    x = torch.randn(batch, WIDTH, device=ctx.device)
    labels = x[:, :CLASSES].argmax(1)
    accumulate = add_detached if ctx.fixed else add

    running_loss, memory = 0.0, []
    for step in range(1, steps + 1):
        loss = F.cross_entropy(model(x), labels)
        if ctx.variant == "training":
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        running_loss = accumulate(running_loss, loss)
        if step % (steps // 30) == 0:
            memory.append(resident_mib())
            print(f"step={step} loss={loss.item():.4f} rss_mib={memory[-1]:.1f} "
                  f"running_loss_requires_grad={int(running_loss.requires_grad)}")
        if step % (steps // 3) == 0:
            print("running_loss:", running_loss)
    ctx.result(memory=memory, nodes=graph_nodes(running_loss), mean=float(running_loss) / steps)
    print(f"training finished after {steps} steps")


def check(out):
    memory = out.results["memory"]
    assert len(memory) == 30 and 0 < out.results["mean"] < 3
    assert out.results["nodes"] == 0, f"{out.results['nodes']} graph nodes are still reachable from the sum"
    assert memory[-1] - memory[4] < 8, f"resident memory grew from {memory[4]:.1f} to {memory[-1]:.1f} MiB"
