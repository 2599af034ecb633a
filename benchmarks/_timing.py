"""Times of several candidates, taken in turns."""

from __future__ import annotations

import statistics
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

#: A single reading should last about this long (seconds), so that the clock's own cost does not matter.
_READING = 0.001

#: Other work on the machine only ever adds to a reading: the lower quartile repeats better than the median does.
_QUANTILE = 4


def clock(threads: int) -> Callable[[], float]:
    """Of the calling thread alone where it does all the work: what else runs on the machine then hardly counts."""
    return time.thread_time if threads == 1 else time.perf_counter


def in_turns(
    candidates: Mapping[str, Callable[[], object]], *, rounds: int, threads: int
) -> dict[str, list[float]]:
    """Seconds per call of each candidate, one reading per round, all candidates within each round."""
    now = clock(threads)
    repeats: dict[str, int] = {}
    for name, call in candidates.items():
        call()
        start = now()
        call()
        call()
        each = max((now() - start) / 2, 1e-7)
        repeats[name] = max(1, min(1000, round(_READING / each)))
    times: dict[str, list[float]] = {name: [] for name in candidates}
    names = list(candidates)
    for turn in range(rounds):
        # No candidate is always the one behind the same other.
        for name in names[turn % len(names) :] + names[: turn % len(names)]:
            call, count = candidates[name], repeats[name]
            call()
            start = now()
            for _ in range(count):
                call()
            times[name].append((now() - start) / count)
    return times


def settled(times: list[float]) -> float:
    """The lower quartile of the readings."""
    return times[0] if len(times) < 2 else statistics.quantiles(times, n=_QUANTILE)[0]
