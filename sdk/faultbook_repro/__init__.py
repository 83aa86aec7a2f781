"""The reproduction runner: runs the two halves of an entry and proves, or disproves, what it says.

Nothing imports this package, since it executes code of strangers; it executes it in
forked children of a separate server process (see `server`), never in the caller's.
"""

from .records import Outcome, RankRecord
from .runner import Runner, RunnerError

__all__ = ["Outcome", "RankRecord", "Runner", "RunnerError"]
