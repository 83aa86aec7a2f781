"""The reproduction runner: runs the two halves of an entry and proves, or disproves, what it says.

Nothing imports this package, since it executes code of strangers; it executes it in
forked children of a separate server process (see `core.server`), never in the caller's.
"""

from .core.records import Outcome, RankRecord
from .core.runner import Runner, RunnerError

__all__ = ["Outcome", "RankRecord", "Runner", "RunnerError"]
