"""Entries in the layout of catalog.json: a silent cause, a hang, a hub and a noise entry; and a hostile one."""

from __future__ import annotations

import math
from typing import Any

BROKEN = '''class Temperature(nn.Module):
    """Free parameter: nothing keeps it positive."""

    def __init__(self, start: float = 0.07) -> None:
        super().__init__()
        self.value = nn.Parameter(torch.tensor(start))

    def forward(self, similarity: torch.Tensor) -> torch.Tensor:
        return similarity / self.value
'''
FIXED = '''class BoundedTemperature(nn.Module):
    """Learns log(1/temperature): always positive, floor 0.01 kept after each step."""

    def __init__(self, start: float = 0.07, floor: float = 0.01) -> None:
        super().__init__()
        self.log_scale = nn.Parameter(torch.tensor(math.log(1 / start)))
        self.max_log_scale = math.log(1 / floor)

    def forward(self, similarity: torch.Tensor) -> torch.Tensor:
        return similarity.float() * self.log_scale.exp()
'''
DIFF = "--- fails\n+++ fixed\n@@ -1,9 +1,10 @@\n-class Temperature(nn.Module):\n+class BoundedTemperature(nn.Module):\n"
STEPS = 60
BROKEN_LOG = "".join(
    f"step {i} loss {4.1 * math.exp(-i / 9):.4f} temperature {0.07 - i * 0.0016:.4f}\n"
    if i < 44
    else f"step {i} loss {9.0 + i:.4f} temperature {0.07 - i * 0.0016:.4f}\n"
    if i < 47
    else f"step {i} loss nan temperature nan\n"
    for i in range(STEPS)
)
FIXED_LOG = "".join(f"step {i} loss {4.1 * math.exp(-i / 30):.4f} temperature {0.07 * 0.99**i:.4f}\n" for i in range(STEPS))
HANG_LOG = """[rank0]: building model
[rank1]: building model
[rank1]: rank 1 has 1 extra parameter
[rank0]: Traceback (most recent call last):
[rank0]:   File "repro.py", line 61, in run
[rank0]: RuntimeError: Timed out waiting 1000ms for recv operation to complete
[rank1]: RuntimeError: [../third_party/gloo/gloo/transport/tcp/pair.cc:534] Connection closed by peer [127.0.0.1]:4021
"""


def curve(log: str, key: str) -> dict[str, Any]:
    words = [line.split() for line in log.splitlines()]
    values = [w[w.index(key) + 1] for w in words]
    return {
        "name": key,
        "rank": None,
        "steps": [float(w[1]) for w in words],
        "values": [v if v == "nan" else float(v) for v in values],
    }


def proof(mode: str, broken: dict[str, Any], fixed: dict[str, Any]) -> dict[str, Any]:
    """A record in the layout of proofs/."""
    failed = {"check": False, "objection": "repro.py:9: AssertionError: it failed", "outcome": "completes", "seconds": 0.8}
    passed = {"check": True, "objection": None, "outcome": "completes", "seconds": 0.4}
    return {
        "schema": "faultbook.proof/1",
        "mode": mode,
        "device": "cpu",
        "date": "2026-11-30",
        "torch": "2.13.0+cpu",
        "python": "3.11.7",
        "platform": "linux-x86_64",
        "variants": [{"variant": "", "broken": {**failed, **broken}, "fixed": {**passed, **fixed}}],
    }


def temperature() -> dict[str, Any]:
    return {
        "schema": "faultbook.entry/1",
        "slug": "learned-temperature-collapse",
        "kind": "cause",
        "title": "Learned Temperature Collapse in Contrastive Loss",
        "category": "model",
        "severity": "high",
        "visibility": "silent",
        "parent": "representation-collapse",
        "aliases": ["logit-scale-collapse", "Contrastive temperature divergence"],
        "tags": ["contrastive", "clip"],
        "affects": [{"system": "pytorch", "note": "any loss with a free temperature"}],
        "stages": ["training"],
        "applies_to": "training",
        "quick_answer": "A learned temperature without a bound is driven toward zero, because a smaller temperature "
        "always lowers the loss of pairs that are already ranked right. Learn `log(1/temperature)` and clamp it at "
        "a floor of 0.01.",
        "symptoms": [
            {
                "observe": "The loss falls faster than in earlier runs and looks *wonderful*",
                "why": "the scale, not the embedding, does the work",
            },
            {
                "observe": "`temperature` falls steadily and reaches zero",
                "why": "its gradient has one sign while the batch is separable",
            },
            {"observe": "Then the loss jumps or becomes NaN", "why": "logits change sign at zero, or overflow before it"},
        ],
        "root_cause": "The loss is a function of `similarity / temperature`. Where every positive pair is ranked first, "
        "the gradient with respect to the temperature is positive for **every** value, so nothing stops it.",
        "mechanism": "Three phases:\n\n1. The embedding learns; the temperature barely moves.\n2. Pairs are separable; the "
        "temperature falls.\n3. It crosses zero.\n\n```python\nlogits = sim / 0.0001\n\nprint(logits)\n```\n",
        "confirm": [
            {
                "step": "Log the temperature",
                "how": "Add `print(model.temperature.item())` to the loop",
                "expect": "a value below 0.01 and still falling",
            },
            {
                "step": "Freeze it at 0.07 and continue from the last good checkpoint",
                "how": "`model.temperature.requires_grad_(False)`",
                "expect": "the loss rises at once to an honest value, and stays finite",
            },
        ],
        "fix": {
            "summary": "Learn the logarithm of the inverse temperature and clamp it after each step.",
            "why": "steps become relative, so zero cannot be crossed",
            "risk": "A checkpoint of the old module needs its parameter converted.",
        },
        "action": {"do": "fix_code", "when": "before the next run; roll back to a checkpoint whose temperature is above 0.01"},
        "not_this_if": [{"entry": "representation-collapse", "because": "the temperature stays put while the loss falls:"}],
        "misread_as": [{"reading": "a very good model", "why": "retrieval accuracy does not follow the loss"}],
        "verify": {
            "command": "faultbook verify learned-temperature-collapse",
            "expect": "the fixed half ends with temperature ≥ 0.01",
        },
        "prevention": {
            "before_launch": ["Clamp the scale at 100, as CLIP does"],
            "at_run_time": ["Log the temperature beside the loss"],
            "after": ["Compare retrieval accuracy, not losses"],
        },
        "monitor": {
            "watch": "`temperature` or `logit_scale`",
            "alert": "below 0.01",
            "extra_line": 'log({"temperature": model.temperature.item()})',
        },
        "scale": {"one_gpu": "Within a hundred steps on a small set.", "many_gpus": "Later: large batches are separable later."},
        "perspectives": {
            "executive": "The run reports its best loss ever just before it is lost.",
            "engineer": "One missing clamp.",
            "on_call": ["Look at the temperature series.", "Roll back to where it was above 0.01.", "Restart with the clamp."],
        },
        "stack_examples": [
            {"stack": "pytorch", "status": "executed", "code": FIXED, "note": "as above"},
            {"stack": "open_clip", "status": "reviewed", "code": "model.logit_scale.clamp_(0, math.log(100))"},
        ],
        "time_to_fix": "an hour",
        "recurrence": "Every run until it is clamped.",
        "signatures": [
            {
                "kind": "metric",
                "id": "temperature-below-floor",
                "role": "root",
                "ordered": True,
                "observed_in": "extra_line",
                "extra_line": 'log({"temperature": model.temperature.item()})',
                "all": [
                    {"series": ["temperature", "logit_scale"], "test": "below", "value": 0.005, "patience": 3},
                    {"series": ["role:loss"], "test": "nonfinite"},
                ],
            }
        ],
        "references": [
            {
                "title": "Learning Transferable Visual Models From Natural Language Supervision",
                "url": "https://arxiv.org/abs/2103.00020",
                "date": "2021-02-26",
                "kind": "paper",
            }
        ],
        "related": [{"entry": "fsdp-divergent-parameter-init-hang", "relation": "see_also"}],
        "repro": {"mode": "real", "devices": ["cpu", "cuda"], "world_size": 1},
        "code": {"broken": BROKEN, "fixed": FIXED, "diff": DIFF},
        "logs": {"logs/broken.log": BROKEN_LOG, "logs/fixed.log": FIXED_LOG},
        "proofs": [
            proof(
                "real",
                {
                    "curves": [curve(BROKEN_LOG, k) for k in ("loss", "temperature")],
                    "signatures": {"temperature-below-floor": {"fired": True, "lines": [43, 48], "step": 47.0}},
                },
                {"curves": [curve(FIXED_LOG, k) for k in ("loss", "temperature")]},
            )
        ],
        "inverse_related": [],
    }


def hang() -> dict[str, Any]:
    return {
        "slug": "fsdp-divergent-parameter-init-hang",
        "kind": "cause",
        "title": "FSDP Hang Due to Divergent Parameter Initialization",
        "category": "distributed",
        "severity": "critical",
        "visibility": "hang",
        "aliases": ["fsdp-divergent-init"],
        "tags": ["fsdp"],
        "affects": [{"system": "fsdp"}],
        "stages": ["startup", "communication"],
        "quick_answer": "One rank builds one parameter more than the others, so its next collective differs from theirs "
        "and all wait. Build the same module tree on every rank.",
        "symptoms": [
            {"observe": "No output after model construction", "why": "ranks wait for each other"},
            {"observe": "A time-out minutes later, on the *healthy* ranks", "why": "the guilty one is elsewhere"},
            {"observe": "GPU utilisation stays at 100 %", "why": "the NCCL kernel spins"},
        ],
        "root_cause": "Parameters are created under a condition that depends on the rank.",
        "confirm": [{"step": "Compare parameter counts", "how": "print them per rank", "expect": "one rank differs"}],
        "fix": {
            "summary": "Create parameters on every rank; only their values may differ.",
            "command": "torchrun --nproc-per-node 2 train.py",
        },
        "action": {"do": "fix_code", "when": "always"},
        "signatures": [
            {
                "kind": "log",
                "id": "recv-timeout",
                "role": "cascade",
                "all": [{"pattern": r"Timed out waiting \d+ms for (?:recv|send) operation", "literals": ["Timed out waiting"]}],
                "not_evidence_of": ["nccl-network-fault"],
            }
        ],
        "references": [
            {"title": "FSDP", "url": "https://docs.pytorch.org/docs/stable/fsdp.html", "date": "2026-01-01", "kind": "docs"}
        ],
        "repro": {
            "mode": "simulated",
            "stands_in": "gloo on CPU stands in for NCCL on GPUs.",
            "devices": ["cpu"],
            "world_size": 2,
        },
        "code": {
            "broken": "if rank == ctx.guilty:\n    model.extra = nn.Linear(4, 4)\n",
            "fixed": "model.extra = nn.Linear(4, 4)\n",
            "diff": "-if rank == ctx.guilty:\n",
        },
        "logs": {"logs/broken.log": HANG_LOG, "logs/fixed.log": "[rank0]: done\n[rank1]: done\n"},
        "proofs": [proof("simulated", {"outcome": "hangs"}, {})],
        "inverse_related": [{"entry": "learned-temperature-collapse", "relation": "see_also"}],
    }


def hub() -> dict[str, Any]:
    return {
        "slug": "representation-collapse",
        "kind": "symptom",
        "title": "Representation Collapse in Self-Supervised Training",
        "category": "model",
        "severity": "high",
        "visibility": "silent",
        "tags": ["contrastive"],
        "quick_answer": "All inputs map to nearly one vector. The loss cannot tell why; the tests below can.",
        "symptoms": [{"observe": "Embedding variance falls to zero", "why": "every input maps to one point"}],
        "routes": [
            {
                "when": "The temperature falls below 0.01",
                "signature": "learned-temperature-collapse#temperature-below-floor",
                "to": "learned-temperature-collapse",
                "test": "Freeze the temperature: does the loss rise?",
            },
        ],
        "signatures": [],
        "references": [],
        "proofs": [],
        "inverse_related": [],
    }


def noise() -> dict[str, Any]:
    return {
        "slug": "omp-threads-notice",
        "kind": "noise",
        "title": "Setting OMP_NUM_THREADS to 1",
        "category": "environment",
        "severity": "low",
        "visibility": "loud",
        "quick_answer": "torchrun prints this at every start. It is a notice.",
        "symptoms": [{"observe": "A boxed notice at the top of the log", "why": "the launcher sets a default"}],
        "harmless_unless": "Data loading is slow and the machine has idle cores.",
        "signatures": [],
        "references": [],
        "proofs": [],
        "inverse_related": [],
    }


ATTACKS = (
    "<script>window.pwned=1</script>",
    '"><img src=x onerror="window.pwned=1">',
    "</title><script>window.pwned=1</script>",
    "[x](javascript:window.pwned=1)",
    "![x](https://third.example/x.png)",
    "{{ 7*7 }} {% raw %}",
    "{: onclick=window.pwned=1 }",
    "</code></pre><script>window.pwned=1</script>",
    "```\n<script>window.pwned=1</script>\n```",
    "~~~\n<img src=x onerror=window.pwned=1>\n~~~",
    "\x02wzxhzdk:0\x03 \u2028 <svg/onload=window.pwned=1>",
    "# heading\n\n<iframe src=javascript:window.pwned=1>",
    "---\ntemplate: x.html\n---\n",
    "&lt;script&gt;window.pwned=1&lt;/script&gt;",
    "<https://x.example/><script>window.pwned=1</script>",
)


def poison(value: Any) -> Any:
    """The same shape with an attack in every string."""
    if isinstance(value, dict):
        return {k: poison(v) if k not in FIXED_FIELDS else v for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return [poison(v) for v in value]
    return " ".join(ATTACKS) + str(value) if isinstance(value, str) else value


# Closed vocabularies and slugs: the schema admits nothing else there, and paths are made of them.
FIXED_FIELDS = {"slug", "kind", "entry", "to", "parent", "mode", "proven"}


def hostile() -> dict[str, Any]:
    entry = poison({**temperature(), **{k: v for k, v in hub().items() if k == "routes"}})
    entry["slug"] = "hostile-entry"
    entry["logs"] = {"logs/broken.log": "\n".join(ATTACKS), "logs/fixed.log": "ok\n"}
    entry["tags"] = []
    entry["category"], entry["visibility"], entry["severity"] = ATTACKS[1], ATTACKS[0], ATTACKS[1]
    return dict(entry)


def catalogue(*entries: dict[str, Any]) -> dict[str, Any]:
    chosen = entries or (temperature(), hang(), hub(), noise())
    return {"schema": "faultbook.catalogue/1", "digest": "sample", "entries": list(chosen)}


def signatures(data: dict[str, Any]) -> dict[str, Any]:
    return {
        "schema": "faultbook.signatures/1",
        "digest": data["digest"],
        "entries": [
            {k: e.get(k) for k in ("slug", "kind", "title", "category", "severity", "visibility", "parent", "quick_answer")}
            for e in data["entries"]
        ],
        "signatures": [{"entry": e["slug"], **s} for e in data["entries"] for s in e["signatures"]],
    }
