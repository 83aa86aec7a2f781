"""Only the weights are saved; after the resume Adam (or the GradScaler) starts from nothing.

Variant adam: a new Adam has no second moment, so that each of its first steps moves every parameter by
the full learning rate, whatever its gradient: the loss jumps. Variant scaler: fp16 autocast; the loss scale
starts at its initial value again and has to search downward by skipping steps.
"""

import torch
import torch.nn.functional as F
from torch import nn

VARIANTS = ("adam", "scaler")
STOP, STEPS, WIDTH, LR = 300, 420, 256, 1e-2


# region broken
def save(path, step, model, optimizer, scaler) -> None:
    torch.save({"step": step, "model": model.state_dict()}, path)


def restore(path, model, optimizer, scaler) -> int:
    checkpoint = torch.load(path, weights_only=True)
    model.load_state_dict(checkpoint["model"])
    return checkpoint["step"]
# endregion


# region fixed
def save_all(path, step, model, optimizer, scaler) -> None:
    torch.save({"step": step, "model": model.state_dict(), "optimizer": optimizer.state_dict(),
                "scaler": scaler.state_dict()}, path)


def restore_all(path, model, optimizer, scaler) -> int:
    checkpoint = torch.load(path, weights_only=True)
    model.load_state_dict(checkpoint["model"])
    optimizer.load_state_dict(checkpoint["optimizer"])
    scaler.load_state_dict(checkpoint["scaler"])
    return checkpoint["step"]
# endregion


def build(device: str, half: bool):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(32, WIDTH), nn.GELU(), nn.Linear(WIDTH, WIDTH), nn.GELU(), nn.Linear(WIDTH, 8)).to(device)
    optimizer = torch.optim.Adam(model.parameters(), lr=LR)
    scaler = torch.amp.GradScaler(device, init_scale=2.0**24, growth_interval=1000, enabled=half)
    return model, optimizer, scaler


def run(ctx):
    half = ctx.variant == "scaler"
    ctx.workload(steps=STEPS, stopped_at=STOP, batch=64, widths=[32, WIDTH, WIDTH, 8], half=half)
    generator = torch.Generator().manual_seed(ctx.seed + 1)
    teacher = (torch.randn(32, 8, generator=generator) / 4).to(ctx.device)
    path = ctx.tmp / "last.pt"
    losses, skipped, last_scale = [], 0, None

    def session(first: int, last: int, model, optimizer, scaler) -> None:
        nonlocal skipped, last_scale
        for step in range(first, last):
            x = torch.randn(64, 32, generator=generator).to(ctx.device)
            y = (x @ teacher).sin()
            with torch.autocast(ctx.device, torch.float16, enabled=half):
                loss = F.mse_loss(model(x).float(), y)
            optimizer.zero_grad()
            scaler.scale(loss).backward()
            scaler.unscale_(optimizer)
            norm = nn.utils.get_total_norm([p.grad for p in model.parameters()]).item()
            scaler.step(optimizer)
            before = scaler.get_scale()
            scaler.update()
            skipped += scaler.get_scale() < before and first > 0
            losses.append(loss.item())
            if step % 5 == 0 or (first > 0 and step < first + 10):
                scale = f" loss_scale={before:.0f}" if half else ""
                print(f"step={step} loss={loss.item():.4f} grad_norm={norm:.3f} lr={optimizer.param_groups[0]['lr']:g}{scale}")

    parts = build(ctx.device, half)
    session(0, STOP, *parts)
    (save_all if ctx.fixed else save)(path, STOP, *parts)
    last_scale = parts[2].get_scale()

    parts = build(ctx.device, half)  # a new process: everything is made anew
    first = (restore_all if ctx.fixed else restore)(path, *parts)
    print(f"step={first} resumed_at_step={first} optimizer_tensors={len(parts[1].state)}")
    scale_after = parts[2].get_scale()
    session(first, STEPS, *parts)
    print(f"training finished after {STEPS} steps")
    before, after = losses[STOP - 20:STOP], losses[STOP:STOP + 10]
    ctx.result(level_before=sum(before) / 20, worst_after=max(after), skipped=skipped, state=len(parts[1].state),
               scale_before=last_scale, scale_after=scale_after, final=sum(losses[-20:]) / 20)


def check(out):
    result = out.results
    assert result["worst_after"] < 1.6 * result["level_before"], (
        f"loss {result['worst_after']:.3f} after the resume, {result['level_before']:.3f} before")
    assert result["scale_after"] == result["scale_before"], "the loss scale is not where it was"
    assert result["skipped"] == 0, f"{result['skipped']} steps skipped after the resume"
    assert result["final"] <= result["level_before"] * 1.2
