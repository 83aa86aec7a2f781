"""Binary cross-entropy of probabilities inside a CUDA autocast region is refused.

The model ends in a sigmoid and the loss takes probabilities. There is no GPU here: the tensors are torch's fake CUDA tensors, which
have shapes, dtypes and a device and no data, and go through the same dispatcher and the same autocast rules. The fixed
half returns logits and uses the loss that takes them.
"""

import torch
import torch.nn.functional as F
from torch._subclasses.fake_tensor import FakeTensorMode

STEPS, BATCH, WIDTH = 6, 16, 8


# region broken
def loss_of(logits, labels):
    return F.binary_cross_entropy(torch.sigmoid(logits), labels)
# endregion


# region fixed
def loss_of_logits(logits, labels):
    """Sigmoid and logarithm in one, in float32."""
    return F.binary_cross_entropy_with_logits(logits, labels)
# endregion


class CudaAutocast:
    """torch.autocast("cuda", torch.float16), which switches itself off where there is no GPU."""

    def __enter__(self):
        torch.set_autocast_dtype("cuda", torch.float16)
        torch.set_autocast_enabled("cuda", True)

    def __exit__(self, *raised):
        torch.set_autocast_enabled("cuda", False)
        torch.clear_autocast_cache()


def run(ctx):
    ctx.workload(steps=STEPS, batch=BATCH, width=WIDTH)
    with FakeTensorMode():
        weight = torch.empty(1, WIDTH, device="cuda")
        x, labels = torch.empty(BATCH, WIDTH, device="cuda"), torch.empty(BATCH, 1, device="cuda")
        for step in range(STEPS):
            with CudaAutocast():
                logits = F.linear(x, weight)
                loss = (loss_of_logits if ctx.fixed else loss_of)(logits, labels)
            print(f"step={step} logits {str(logits.dtype)[6:]} on {logits.device.type}, loss {str(loss.dtype)[6:]}")
            ctx.result(steps=step + 1, loss_dtype=str(loss.dtype), logits_dtype=str(logits.dtype))
    print(f"training finished after {STEPS} steps")


def check(out):
    assert out.results.get("steps") == STEPS, f"{out.results.get('steps', 0)} of {STEPS} steps were done"
    assert out.results["logits_dtype"] == "torch.float16", "autocast was not on"
    assert out.results["loss_dtype"] == "torch.float32", "the loss was not computed in float32"
