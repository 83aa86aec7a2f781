"""Restarts and appended jobs in one file."""

# ruff: noqa: E501 - log lines are quoted whole

from __future__ import annotations

from faultbook import attempts, attribution
from faultbook.model import Source


def records(text: str) -> list[attribution.Record]:
    source = Source(index=0, name="train.log", kind="log")
    found = attribution.parse_all([source], {0: list(enumerate(text.splitlines(), 1))})
    known = attribution.learn(found, {0: source})
    return attribution.resolve(found, known, {0: source})


def banner(rank: int, pid: int) -> str:
    return f"INFO:train:world_size=2 rank={rank} local_rank={rank} pid={pid} host=node-0\n"


FIRST = banner(0, 500) + banner(1, 501) + "step=1/9 loss=2.0 rank=0\n"
END = ("W0304 15:34:07.100000 400 torch/distributed/elastic/multiprocessing/api.py:1028] Sending process 500 closing signal SIGTERM\n"
       "E0304 15:34:07.400000 400 torch/x.py:1002] failed (exitcode: 1) local_rank: 1 (pid: 501) of binary: python\n")


def test_new_pids_of_the_same_ranks_are_a_new_attempt() -> None:
    divided, bounds = attempts.assign(records(FIRST + END + banner(0, 900) + banner(1, 901) + "step=1/9 loss=2.0 rank=0\n"))
    assert [r.attempt for r in divided] == [0, 0, 0, 0, 0, 1, 1, 1]
    assert bounds == {0: [(6, 1)]}


def test_the_agents_word_about_a_restart_counts_from_the_first_new_banner() -> None:
    restart = "I0304 15:34:08.100000 400 torch/a.py:889] [default] Worker group FAILED. 3/3 attempts left; will restart worker group\n"
    divided, _ = attempts.assign(records(END + restart + banner(0, 900) + banner(1, 901)))
    assert [r.attempt for r in divided] == [0, 0, 0, 1, 1]


def test_ranks_that_introduce_themselves_once_are_one_attempt() -> None:
    divided, bounds = attempts.assign(records(FIRST + FIRST + END))
    assert {r.attempt for r in divided} == {0}
    assert bounds == {}


def test_a_second_job_appended_after_a_failure() -> None:
    divided, _ = attempts.assign(records(FIRST + END + "Starting job 4712\nstep=1/9 loss=2.0 rank=0\n"))
    assert [r.attempt for r in divided][-2:] == [1, 1]


def test_attempts_of_a_directory_are_kept() -> None:
    source = Source(index=0, name="attempt_2/0/stderr.log", kind="log", attempt=2)
    found = attribution.parse_all([source], {0: [(1, "hello")]})
    divided, _ = attempts.assign(found)
    assert [r.attempt for r in divided] == [2]
