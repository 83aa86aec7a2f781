"""A batch whose labels are all masked: the mean over its targets divides by zero."""

IGNORED = -100
BATCHES = [[3, 5, IGNORED], [IGNORED, IGNORED, IGNORED], [1, IGNORED, 2]]


# region broken
def mean_loss(labels):
    targets = [label for label in labels if label != IGNORED]
    return sum(0.1 * target for target in targets) / len(targets)
# endregion


# region fixed
def mean_loss_guarded(labels):
    targets = [label for label in labels if label != IGNORED]
    return sum(0.1 * target for target in targets) / max(len(targets), 1)
# endregion


def run(ctx):
    ctx.workload(steps=len(BATCHES), batch=3)
    loss_of = mean_loss_guarded if ctx.fixed else mean_loss
    losses = []
    for step, labels in enumerate(BATCHES):
        losses.append(loss_of(labels))
        print(f"step {step} loss {losses[-1]:.4f}")
    ctx.result(steps_done=len(losses))


def check(out):
    assert out.results["steps_done"] == len(BATCHES)
