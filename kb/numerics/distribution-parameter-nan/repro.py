"""A policy's advantages are normalized over one sample, whose standard deviation is NaN; the next step has NaN weights.

torch.std divides by n - 1, so for one sample it is 0 / 0. The last minibatch of an episode holds one. The update with a NaN
loss makes every weight NaN, and the step after it fails when it builds a Normal from the network's output.
"""

import torch
from torch import nn
from torch.distributions import Normal

EPISODE, BATCH, WIDTH, EPISODES = 17, 8, 4, 3


# region broken
def normalized(advantage):
    return (advantage - advantage.mean()) / (advantage.std() + 1e-8)
# endregion


# region fixed
def normalized_if_possible(advantage):
    """One sample has no spread: leave it as it is."""
    if len(advantage) < 2:
        return advantage
    return (advantage - advantage.mean()) / (advantage.std() + 1e-8)
# endregion


def run(ctx):
    torch.manual_seed(ctx.seed)
    ctx.workload(episodes=EPISODES, episode=EPISODE, batch=BATCH, width=WIDTH)
    policy = nn.Linear(WIDTH, 1).to(ctx.device)
    optimizer = torch.optim.Adam(policy.parameters(), lr=0.05)
    step = 0
    for episode in range(EPISODES):
        seen = torch.randn(EPISODE, WIDTH, device=ctx.device)
        for state in seen.split(BATCH):
            choice = Normal(policy(state)[:, 0], 0.5)
            action = choice.sample()
            advantage = -(action - state[:, 0]).square()
            loss = -(choice.log_prob(action) * (normalized_if_possible if ctx.fixed else normalized)(advantage)).mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            print(f"step={step} batch={len(state)} policy_loss={loss.item():.4f}")
            step += 1
        ctx.result(episodes=episode + 1, finite=all(bool(p.isfinite().all()) for p in policy.parameters()))
    print(f"training finished after {step} steps")


def check(out):
    assert out.results.get("episodes") == EPISODES, f"stopped after {out.results.get('episodes', 0)} episodes"
    assert out.results["finite"], "the weights are not finite"
