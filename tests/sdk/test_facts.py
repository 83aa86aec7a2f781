"""The virtual lines of the incident: what discriminates failures that print the same text."""

# ruff: noqa: E501 - log lines are quoted whole

from __future__ import annotations

import re

import pytest

from faultbook import fact_lines, facts, incident, sources
from faultbook.signatures import Pattern

CLOSED = "RuntimeError: [/gloo/transport/tcp/pair.cc:553] Connection closed by peer [127.0.0.1]:14762. This is typically caused by"
TIMED_OUT = "RuntimeError: [/gloo/transport/tcp/unbound_buffer.cc:78] Timed out waiting 4000ms for recv operation to complete"
LIBRARY = ('  File "/opt/venv/lib/python3.11/site-packages/torch/distributed/distributed_c10d.py", line 3, in {op}', "    work.wait()")
AUTOGRAD = ('  File "/opt/venv/lib/python3.11/site-packages/torch/autograd/graph.py", line 979, in {op}', "    return run_backward(")


def raised(rank: int, error: str, *frames: tuple[int, str, str], op: str = "all_reduce", inside: tuple[str, str] = LIBRARY) -> str:
    """A traceback of one rank: frames of train.py as (line, function, code), then the library's."""
    lines = ["Traceback (most recent call last):", '  File "/home/user/train.py", line 9, in <module>', "    main()"]
    for line, function, code in frames:
        lines += [f'  File "/home/user/train.py", line {line}, in {function}', f"    {code}"]
    lines += [text.format(op=op) for text in inside] + [error]
    return "".join(f"[rank{rank}]: {text}\n" for text in lines)


def world(size: int = 4) -> str:
    return "".join(f"[rank{r}]: INFO world_size={size} rank={r} local_rank={r}\n" for r in range(size))


def steps(last: int, size: int = 4) -> str:
    return "".join(f"[rank{r}]: step={n}/40 loss=2.{n:04d}\n" for n in range(1, last + 1) for r in range(size))


def facts_of(text: str) -> dict[str, str]:
    """The fields of the only fact; fails if there are several."""
    (line,) = facts.lines_of(incident.from_sources(sources.discover(text=text)))
    assert line.startswith(facts.PREFIX + " kind=")
    return dict(part.split("=", 1) for part in line.split()[1:])


def backward(rank: int, error: str = TIMED_OUT, main: int = 155) -> str:
    return raised(rank, error, (main, "main", "train(model)"), (107, "train", "loss.backward()"), op="run", inside=AUTOGRAD)


def desync(*guilty_frames: tuple[int, str, str], rank: int = 2, op: str = "barrier") -> dict[str, str]:
    """Four ranks, three of which wait in the backward pass of `train`."""
    text = world() + steps(3)
    for r in range(4):
        text += raised(r, CLOSED, *guilty_frames, op=op) if r == rank else backward(r)
    return facts_of(text)


def test_a_rank_that_left_the_loop() -> None:
    found = desync((156, "main", "finish(model)"), (144, "finish", "dist.barrier()"))
    assert found["kind"] == "desync" and found["rank"] == "2" and found["lost"] == "3" and found["wait"] == "timeout"
    assert (found["doing"], found["others"], found["left"], found["function"]) == ("end", "training", "loop", "other")
    assert found["guilty_op"] == "barrier" and "op" not in found


def test_a_rank_in_a_call_from_the_loop_has_not_left_it() -> None:
    found = desync((155, "main", "train(model)"), (128, "train", "evaluate(model)"), (24, "evaluate", "dist.all_gather(parts, x)"))
    assert found["doing"] == "evaluation" and "left" not in found


def test_the_rank_before_the_loop_has_not_left_it() -> None:
    found = desync((154, "main", "warm(model)"), (12, "warm", "dist.barrier()"))
    assert "left" not in found


def test_same_function_is_said() -> None:
    found = desync((155, "main", "train(model)"), (131, "train", "dist.all_gather(parts, loss)"), op="all_gather")
    assert found["function"] == "same" and found["guilty_op"] == "all_gather"


def test_a_sub_group_is_said() -> None:
    text = world() + "INFO groups: [0, 1] [2, 3]\n" + steps(2)
    text += raised(2, TIMED_OUT, (50, "run", "dist.all_to_all_single(a, b, group=pair)"), op="all_to_all_single")
    for r in (0, 1, 3):
        text += raised(r, TIMED_OUT, (60, "run", "dist.all_reduce(x)"))
    (line,) = facts.lines_of(incident.from_sources(sources.discover(text=text)))
    assert " group=sub" in line


def test_own_fault_with_closed_connections() -> None:
    text = world() + steps(3) + raised(1, "ValueError: bad record 7", (80, "read", "raise ValueError(x)"))
    text += backward(0, CLOSED) + backward(2, CLOSED) + backward(3, CLOSED)
    found = facts_of(text)
    assert found["kind"] == "own_fault" and found["exception"] == "ValueError" and found["rank"] == "1"
    assert (found["lost"], found["wait"], found["others"]) == ("3", "closed", "training")
    assert "doing" not in found  # its own code is where it raised, not where it waited


def test_time_outs_and_closed_connections_are_mixed() -> None:
    text = world() + steps(3) + raised(2, TIMED_OUT, (156, "main", "finish()"), (144, "finish", "dist.barrier()"), op="barrier")
    found = facts_of(text + backward(0) + backward(1, CLOSED) + backward(3))
    assert found["wait"] == "mixed"


@pytest.mark.parametrize(
    ("said", "phase"),
    [
        ("Saving checkpoint to /ckpt/step_400", "checkpoint"),
        ("collecting full state dict", "checkpoint"),
        ("running evaluation at step 10", "evaluation"),
        ("Tokenizing corpus", "preprocessing"),
        ("shard shard-00002 exhausted after 30 batches, epoch done", "end"),
    ],
)
def test_what_a_silent_rank_last_said(said: str, phase: str) -> None:
    text = world() + steps(3) + f"[rank0]: INFO {said}\n" + "".join(backward(r) for r in (1, 2, 3))
    found = facts_of(text)
    assert (found["kind"], found["rank"], found["doing"]) == ("silent", "0", phase)


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("shard shard-00002 exhausted after 3 batches", "data_end"),
        ("early stopping: no improvement for 3 evaluations", "early_stop"),
        ("Stopping training early as no improvement observed in last 3 epochs", "early_stop"),
        ("starting evaluation", "evaluation"),
        ("batch of 16 rows", ""),
    ],
)
def test_what_the_guilty_rank_announced_before_it_waited(line: str, said: str) -> None:
    text = world() + steps(3) + f"[rank2]: INFO {line}\n"
    text += raised(2, TIMED_OUT, (156, "main", "finish()"), (144, "finish", "dist.barrier()"), op="barrier")
    found = facts_of(text + backward(0) + backward(1) + backward(3))
    assert found["rank"] == "2" and found.get("said", "") == said


@pytest.mark.parametrize(("ranks", "alone"), [((2,), True), ((1, 2), False), ((), False)])
def test_only_one_rank_skipped_something(ranks: tuple[int, ...], alone: bool) -> None:
    text = world() + steps(3) + "".join(f"[rank{r}]: WARNING loss is nan, skipping batch 4\n" for r in ranks)
    text += raised(2, TIMED_OUT, (156, "main", "finish()"), (144, "finish", "dist.barrier()"), op="barrier")
    found = facts_of(text + backward(0) + backward(1) + backward(3))
    assert (found.get("handled") == "alone") is alone


def test_nothing_failed_says_nothing() -> None:
    text = world() + steps(5) + "[rank0]: training finished after 5 steps\n"
    assert facts.lines_of(incident.from_sources(sources.discover(text=text))) == []


def test_a_rank_that_gloo_aborted_was_in_a_call_and_not_absent() -> None:
    text = world() + steps(3) + "".join(backward(r, CLOSED) for r in (1, 2, 3))
    assert facts_of(text)["kind"] == "silent"
    abort = "[rank0]:   what():  [enforce fail at /gloo/transport/tcp/pair.cc:456] op.preamble.length <= op.nbytes. 820 vs 4. Received data size\n"
    assert facts_of(world() + steps(3) + abort + "".join(backward(r, CLOSED) for r in (1, 2, 3)))["kind"] == "desync"


def test_fields_are_words() -> None:
    text = world() + steps(3) + raised(1, "my.pkg.OddError: x", (80, "<lambda>", "boom()")) + backward(0, CLOSED) + backward(2, CLOSED)
    (line,) = facts.lines_of(incident.from_sources(sources.discover(text=text)))
    assert re.fullmatch(r"faultbook-incident(?: [a-z_]+=[A-Za-z0-9_.:<>-]+)+", line)


def test_a_claim_about_one_log_sees_the_facts() -> None:
    pattern = Pattern(pattern=r"faultbook-incident kind=desync rank=\d+ .* left=loop")
    text = world() + steps(3) + raised(2, TIMED_OUT, (156, "main", "finish()"), (144, "finish", "dist.barrier()"), op="barrier")
    text += backward(0) + backward(1) + backward(3)
    ((seen,),) = fact_lines.observe_text([pattern, Pattern(pattern="Timed out waiting")], text).values()
    assert seen.rank == 2 and seen.source == fact_lines.SOURCE
    assert fact_lines.observe_text([pattern], text.replace("finish", "train")) == {}
    assert fact_lines.observe_text([pattern], "step=1 loss=2.0\n") == {}
