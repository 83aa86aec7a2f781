"""A tensor that autograd kept for the backward pass is changed before that pass runs.

Variant `residual`: `h += skip` writes into the output of a ReLU, which backward needs unchanged.
Variant `optimizer-step`: an optimizer steps weights between the forward pass and a second backward through them.
"""

import torch
import torch.nn.functional as F
from torch import nn

VARIANTS = ("residual", "optimizer-step")
STEPS, BATCH, WIDTH = 12, 16, 8


class Pair(nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder, self.critic = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, 1)


# region broken
def residual(layer, x):
    h = F.relu(layer(x))
    h += x
    return h


def two_updates(encoder_loss, critic_loss, encoder_opt, critic_opt):
    """The critic's weights are stepped while the encoder's loss still waits to go back through them."""
    critic_loss.backward(retain_graph=True)
    critic_opt.step()
    encoder_loss.backward()
    encoder_opt.step()
# endregion


# region fixed
def residual_out_of_place(layer, x):
    h = F.relu(layer(x))
    return h + x


def two_backwards_then_updates(encoder_loss, critic_loss, encoder_opt, critic_opt):
    """All gradients first, all steps after; the encoder's own loss leaves no gradient in the critic."""
    encoder_params = encoder_opt.param_groups[0]["params"]
    gradients = torch.autograd.grad(encoder_loss, encoder_params, retain_graph=True)
    critic_loss.backward()
    for parameter, gradient in zip(encoder_params, gradients):
        parameter.grad = gradient
    critic_opt.step()
    encoder_opt.step()
# endregion


def run(ctx):
    torch.manual_seed(ctx.seed)
    ctx.workload(steps=STEPS, batch=BATCH, width=WIDTH)
    model = Pair().to(ctx.device)
    encoder_opt = torch.optim.SGD(model.encoder.parameters(), lr=0.05)
    critic_opt = torch.optim.SGD(model.critic.parameters(), lr=0.05)
    forward = residual_out_of_place if ctx.fixed or ctx.variant != "residual" else residual
    update = two_backwards_then_updates if ctx.fixed or ctx.variant == "residual" else two_updates
    x = torch.randn(BATCH, WIDTH, device=ctx.device)
    y = x[:, :1]
    for step in range(STEPS):
        score = model.critic(forward(model.encoder, x))
        critic_loss = F.mse_loss(score, y)
        encoder_loss = critic_loss + 0.01 * score.square().mean()
        critic_opt.zero_grad()
        encoder_opt.zero_grad()
        update(encoder_loss, critic_loss, encoder_opt, critic_opt)
        print(f"step={step} loss={critic_loss.item():.4f}")
        ctx.result(steps=step + 1, loss=critic_loss.item())
    print(f"training finished after {STEPS} steps")


def check(out):
    assert out.results.get("steps") == STEPS, f"{out.results.get('steps', 0)} of {STEPS} steps were done"
    assert out.results["loss"] < 1.0, f"the loss ended at {out.results['loss']}"
