"""GRPO on a task that the policy never solves: every completion of a group earns the same, so nothing is learned.

A small policy answers each prompt with six tokens out of twelve. The advantage of an answer is its reward, less the
mean of its group, divided by the standard deviation of the group. The reward of the broken half is 1 for an exact
answer and 0 otherwise, and no sampled answer is exact: all advantages are 0, and so is the gradient. The fixed half pays
for every right token, which makes answers of one group differ.
"""

import torch
from torch import nn

PROMPTS, GROUP, LENGTH, VOCABULARY, STEPS = 4, 16, 6, 12, 60


# region broken
def reward(answers, targets):
    """1 for an exact answer, otherwise 0."""
    return (answers == targets).all(-1).float()
# endregion


# region fixed
def graded_reward(answers, targets):
    """The share of right tokens: 1 for an exact answer, and something for a better one."""
    return (answers == targets).float().mean(-1)
# endregion


def advantages(rewards: torch.Tensor) -> torch.Tensor:
    mean, std = rewards.mean(1, keepdim=True), rewards.std(1, keepdim=True)
    return (rewards - mean) / (std + 1e-4)


def run(ctx):
    torch.manual_seed(ctx.seed)
    ctx.workload(steps=STEPS, prompts=PROMPTS, group=GROUP, length=LENGTH, vocabulary=VOCABULARY)
    targets = torch.randint(VOCABULARY, (PROMPTS, 1, LENGTH)).to(ctx.device)
    policy = nn.Sequential(nn.Embedding(PROMPTS, 32), nn.Tanh(), nn.Linear(32, LENGTH * VOCABULARY)).to(ctx.device)
    start = torch.cat([p.detach().flatten() for p in policy.parameters()])
    optimizer = torch.optim.Adam(policy.parameters(), lr=0.01)
    prompts = torch.arange(PROMPTS, device=ctx.device)
    score = graded_reward if ctx.fixed else reward
    silent = zero_loss = 0
    for step in range(1, STEPS + 1):
        policy_now = torch.distributions.Categorical(logits=policy(prompts).view(PROMPTS, 1, LENGTH, VOCABULARY))
        answers = policy_now.sample((GROUP,)).squeeze(2).transpose(0, 1)
        rewards = score(answers, targets)
        spread = rewards.std(1)
        log_p = policy_now.log_prob(answers)
        ratio = (log_p - log_p.detach()).exp()  # on-policy: 1, but with a gradient
        loss = -(ratio * advantages(rewards).unsqueeze(-1)).mean()
        optimizer.zero_grad()
        loss.backward()
        norm = nn.utils.clip_grad_norm_(policy.parameters(), 1.0)
        optimizer.step()
        silent += float(norm) == 0.0
        zero_loss += abs(loss.item()) < 1e-4
        if step % 2 == 0:
            print({
                "loss": round(loss.item(), 4) + 0.0, "grad_norm": round(float(norm), 6), "learning_rate": 0.01,
                "reward": round(rewards.mean().item(), 4), "reward_std": round(spread.mean().item(), 4),
                "frac_reward_zero_std": (spread < 1e-8).float().mean().item(), "epoch": step / STEPS,
            })
    end = torch.cat([p.detach().flatten() for p in policy.parameters()])
    best = policy(prompts).view(PROMPTS, 1, LENGTH, VOCABULARY).argmax(-1)
    ctx.result(
        exact=reward(best, targets).mean().item(), moved=(end - start).norm().item(),
        steps_without_gradient=silent, steps_with_loss_zero=zero_loss,
    )
    print(f"training finished after {STEPS} steps")


def check(out):
    r = out.results
    assert r["moved"] > 1, f"the weights moved by {r['moved']}; {r['steps_without_gradient']} steps without gradient"
    assert r["exact"] == 1.0, f"share of prompts answered exactly: {r['exact']}"
