"""What a metric's printed name means: the role it plays, or that it is a counter or a setting.

Names are compared after `fold` (lower case, every separator one underscore), so
`grad norm`, `grad_norm` and `Grad-Norm` are one name. The role decides which direction is
good; a name without a role has no direction, and no rule of the engine calls it diverged.
"""

# ruff: noqa: SIM905  (word lists read better as text)
from __future__ import annotations

import functools
from typing import Literal

from . import lazy
from .values import dataclass

_SEPARATORS = lazy.regex(r"[^a-z0-9%]+")
_CAMEL = lazy.regex(r"(?<=[a-z])(?=[A-Z][a-z])")

EVAL = frozenset({"eval", "val", "valid", "validation", "test", "dev", "evaluation", "holdout"})
# A number of this name is set by somebody, not measured.
_SETTING_LAST = frozenset(
    """
    coef coeff coefficient weight weights type fn function window clip clipping threshold decay factor
    power size dim dims seed port version num workers layers heads steps epochs beta betas gamma eps
    epsilon momentum warmup ratio interval patience limit limits dropout every freq frequency
    max_steps hysteresis length len target lambda alpha mode reduction scaling penalty fraction pct
    samples budget
    """.split()
)
_SETTING = frozenset(
    """
    batch_size bs micro_batch_size global_batch_size world_size local_rank rank seed num_workers
    max_grad_norm clip_grad clip_grad_norm grad_clip max_norm min_lr base_lr max_lr init_lr lr_end
    end_lr total_steps num_train_epochs num_epochs epochs max_epochs train_iters v_num pid port eta
    nproc nnodes node_rank top_k top_p min_p n_embd n_layer n_head max_tokens min_loss_scale
    initial_loss_scale init_loss_scale loss_scaler init_scale loss_scale_window initial_scale_power
    kl_target target_kl init_kl_coef
    """.split()
)
_STEPS = frozenset(
    """
    step steps global_step global_steps globalstep iter iters iteration iterations it itr current_step
    current_steps num_updates num_update update updates completed_step train_step training_step
    train_iter global_step_max_steps trainer_global_step train_global_step global_iter
    global_iteration n_updates total_timesteps
    """.split()
)
_BATCHES = frozenset(
    """
    batch batch_idx batch_id minibatch mini_batch batches train_batch
    """.split()
)
_EPOCHS = frozenset(
    """
    epoch ep train_epoch epoch_idx cur_epoch current_epoch training_epoch
    """.split()
)
_EPISODES = frozenset(
    """
    episode episodes ep_num num_episodes
    """.split()
)
_STEP_TIME = frozenset(
    """
    step_avg time dt step_time iter_time batch_time batch_t ms_batch s_batch sec_batch sec_step s_step ms_step
    seconds secs elapsed_time_per_iteration_ms elapsed_time_per_iteration_s time_per_step
    time_per_iter timing_s_step s_it ms_step_time time_ms time_s iteration_time perf_time_per_step
    avgtime train_step_timing_in_s secs_per_step
    """.split()
)
_DATA_TIME = frozenset(
    """
    data data_time data_t dataload_time data_loading_time dataloading_time dataloader_time data_wait
    """.split()
)
_THROUGHPUT = frozenset(
    """
    tps ips throughput speed wps ups fps mfu hfu tflops samplespersec samples_per_second steps_per_second
    tokens_per_second tokens_per_sec it_s it_sec tgs tok_s tok_sec tokens_s tokens_sec samples_s
    samples_sec currsamplespersec runningavgsamplespersec imgs_s img_s images_sec examples_sec steps_s
    global_tokens_s sps
    """.split()
)
_MEMORY = lazy.regex(r"(?:^|_)(?:mem|memory|vram|rss|memallocated|maxmemallocated|allocated|reserved|peak_mem|gpumem)(?:_|$)")
_ACCURACY = frozenset(
    """
    acc accuracy acc1 acc5 top1 top5 map map50 miou iou f1 auc precision recall bleu rouge em pixacc
    dice mrr ndcg winrate success
    """.split()
)
_ERROR_RATE = frozenset(
    """
    wer cer ter epe mae rmse fid error_rate bpb bpc mse
    """.split()
)
_MAIN_LOSS = frozenset(
    """
    loss losses train training lm total avg avr average mean batch step epoch iter running smoothed
    smooth ema ce cross entropy crossentropy crossentropyloss nll mlm sft ctc current cur cum tr
    masked language modeling model final global reduced l local interval overall per token is in so
    far of trainer metrics xent mtp 1 2
    """.split()
)
_POLICY = frozenset(
    """
    policy actor pg pi act surr pol clipfrac ppo grpo
    """.split()
)
_VALUE = frozenset(
    """
    value critic vf cri v q qf
    """.split()
)
_GAN = frozenset(
    """
    gan disc gen discriminator generator adv adversarial fake real dis netd netg critics
    """.split()
)
_AUX = frozenset(
    """
    aux z balance lb moe router load balancing
    """.split()
)

Kind = Literal["metric", "step", "batch", "epoch", "episode", "setting", "plain"]


@dataclass(frozen=True, slots=True)
class Name:
    """A printed name after cleaning."""

    text: str
    kind: Kind
    """plain: nothing is known about it; kept only in lines that are surely metric lines."""
    role: str | None = None


@functools.lru_cache(maxsize=4096)
def fold(name: str) -> str:
    """The form in which names are compared."""
    return _SEPARATORS.sub("_", _CAMEL.sub("_", name).lower()).strip("_")


def role_of(name: str) -> str | None:
    """The role of a series by its name; None when nothing is known about it."""
    return _role(_SEPARATORS.sub("_", name.lower()).strip("_")) or _role(fold(name))


def _role(folded: str) -> str | None:
    tokens = [t.rstrip("0123456789") or t for t in folded.split("_")]
    words = frozenset(tokens)
    if not folded or folded in _SETTING or folded in _STEPS or (len(tokens) > 1 and tokens[-1] in _SETTING_LAST):
        return None
    if folded.startswith(("number_of_", "num_", "n_", "skipped", "nan_")) or words & {
        "count",
        "counter",
        "skipped",
    }:
        return "counter" if words & {"nan", "skipped", "inf", "overflow", "overflows"} else None
    evaluated = bool(words & EVAL)
    is_loss = any(t.endswith(("loss", "losses")) for t in tokens) or bool(words & {"nll", "xent", "bce"})
    cross = words & {"cross", "crossentropy", "crossentropyloss", "ce"}
    if words & {"entropy", "ent", "entropyloss"} and not cross:
        return "entropy"
    if words & {"kl", "approxkl", "kld", "kldiv", "ppokl"} and not words & {"coef", "coeff"}:
        return "kl"
    if words & {"reward", "rewards", "score", "scores", "rew", "return", "returns"} and not is_loss:
        if words & {"std", "stdev", "deviation", "frac", "zero"}:
            return "reward_std"
        return "reward" if not words & {"time", "timing", "timings"} else None
    if words & {"router", "expert", "experts"} and not is_loss:
        return "router_load"
    if "scale" in words or words & {"lossscale", "gradscale", "scaler"}:
        if words & {"logit", "logits"}:
            return "logit_scale"
        if words & {"loss", "grad", "gradient", "amp", "fp16", "scaler", "lossscale", "gradscale"} or folded == "scale":
            return "loss_scale"
        return None
    if words & {"temperature", "temp", "tau"}:
        return "gpu_temperature" if words & {"gpu", "cpu"} else "temperature"
    if ("norm" in words and words & {"grad", "grads", "gradient", "gradients", "g"}) or words & {
        "gnorm",
        "gradnorm",
        "gnorms",
    }:
        return "grad_norm"
    if folded in ("norm", "grad", "total_norm", "gn", "raw_norm"):
        return "grad_norm"
    if words & {"lr", "learningrate"} or ("learning" in words and "rate" in words):
        return "lr"
    if words & {"ppl", "perplexity"}:
        return "eval_perplexity" if evaluated else "perplexity"
    throughput = (
        words & _THROUGHPUT
        or folded in _THROUGHPUT
        or "throughput" in words
        or (
            len(tokens) > 1
            and tokens[-1] in ("s", "sec", "second")
            and words
            & {
                "tok",
                "tokens",
                "samples",
                "it",
                "steps",
                "images",
                "imgs",
                "examples",
                "words",
                "token",
                "flop",
                "tflop",
                "step",
            }
        )
        or (tokens[-1] in ("device", "gpu") and words & {"tok", "tokens", "token", "samples", "images"})
        or "tflop" in words
        or "tflops" in words
    )
    if throughput:
        return "throughput"
    if "usage" in words or folded.endswith("cache_usage"):
        return "cache_usage" if words & {"token", "cache", "kv"} else None
    if folded in _DATA_TIME:
        return "data_time"
    if folded in _STEP_TIME or folded.removesuffix("_ms").removesuffix("_s") in _STEP_TIME:
        return "step_time"
    if _MEMORY.search(folded) and not words & {"free", "total", "fragmentation", "clock", "samples", "rate"}:
        return "memory"
    if is_loss or cross:
        return _loss_role(tokens, words, evaluated, frozenset(folded.split("_")))
    if words & _ACCURACY:
        return "eval_accuracy" if evaluated else "accuracy"
    if words & _ERROR_RATE:
        return "eval_error" if evaluated else "error_rate"
    return None


def _loss_role(tokens: list[str], words: frozenset[str], evaluated: bool, printed: frozenset[str]) -> str:
    if evaluated:
        return "eval_loss"
    if words & _POLICY:
        return "policy_loss"
    if words & _VALUE:
        return "value_loss"
    if words & _GAN or printed & {"d", "g"} or (tokens[-1] == "loss" and tokens[0] in ("dloss", "gloss")):
        return "gan_loss"
    if words & _AUX:
        return "aux_loss"
    return "loss" if words <= _MAIN_LOSS else "loss_term"


_INDEXED = frozenset({"loss scaler", "cuda", "gpu", "device", "node", "worker"})
"""An index follows, no value: `loss scaler 0`, `cuda:0`."""
_FILES = (".py", ".cc", ".cpp", ".cu", ".h", ".c", ".json", ".yaml", ".txt", ".log")
# Words that lead up to a name, or follow it, in sentences.
_TAIL = lazy.regex(r"(?:[ ](?:is|was|of|at|to|now|so|far|equals|became|reached))+$")
_LONG = frozenset(
    {
        "elapsed_time_per_iteration_ms",
        "number_of_nan_iterations",
        "number_of_skipped_iterations",
        "number_of_nan_iters",
        "number_of_skipped_iters",
    }
)
_LEADING = frozenset("info warning error debug rank n/a none null".split())


def read_name(raw: str) -> Name | None:
    """Cleans a printed name; None when it is no name of a number at all."""
    text = _TAIL.sub("", raw.strip(" -|,\t'\"‘’“”"))
    if not text or text.endswith(_FILES) or text.lower() in _INDEXED:
        return None
    if " " in text:
        words = text.split(" ")
        for index in range(len(words) - 1, 0, -1):
            if words[index - 1].endswith((".", ",", ":", ";")) or words[index - 1].lower() in _LEADING:
                words = words[index:]
                break
        if fold(" ".join(words)) not in _LONG:
            while len(words) > 1 and fold(" ".join(words[1:])) in _LONG:
                words = words[1:]
            if fold(" ".join(words)) not in _LONG:
                words = words[-5:] if words[-1].startswith("(") else words[-4:]
        text = " ".join(words)
    folded = fold(text)
    for names, kind in ((_STEPS, "step"), (_BATCHES, "batch"), (_EPOCHS, "epoch"), (_EPISODES, "episode")):
        if folded in names or (" " in text and fold(text.rsplit(" ", 1)[-1]) in names and folded not in _LONG):
            return Name(text, kind)  # type: ignore[arg-type]
    role = role_of(text)
    if role is not None:
        return Name(text, "metric", role)
    lower = _SEPARATORS.sub("_", text.lower()).strip("_")
    if (
        "batch_size" in folded
        or lower in _SETTING
        or folded in _SETTING
        or (folded.rpartition("_")[2] in _SETTING_LAST and "/" not in text and " " not in text)
    ):
        return Name(text, "setting")
    return Name(text, "plain") if len(text) <= 60 else None
