"""``python -m tests.fuzz``: try inputs for some time, and say what was found."""

from __future__ import annotations

import argparse
import itertools
import sys
import time
from pathlib import Path

from tests.fuzz import corpus
from tests.fuzz.driver import make, run, run_corpus
from tests.fuzz.judge import Outcome, judge


def main() -> int:
    """1 where there was a find."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("--minutes", type=float, default=60.0)
    parser.add_argument("--start", type=int, default=0, help="the first seed")
    parser.add_argument("--count", type=int, help="how many seeds at most")
    parser.add_argument("--verify", type=float, default=0.1, help="how often verification is on, 0 to 1")
    parser.add_argument("--simplify", type=float, default=0.01, help="how often simplification is on")
    parser.add_argument("--save", type=Path, help="a folder that takes the first input of each cause")
    parser.add_argument("--seed", type=int, help="try this one here, without limits, and print its traceback")
    parser.add_argument(
        "--keep", metavar="NAME", help="with --seed: keep that input in the corpus, under this name"
    )
    parser.add_argument(
        "--corpus", action="store_true", help="try the inputs that were finds once, and nothing else"
    )
    given = parser.parse_args()
    chances = {"verify": given.verify, "simplify": given.simplify}
    if given.corpus:
        tally = run_corpus(lambda path, outcome: _say(f"{path.name}: {_told(outcome)}"))
        _say(f"{sum(tally.outcomes.values())} inputs")
        return 1 if tally.finds else 0
    if given.seed is not None:
        return _again(given.seed, given.save or Path(), chances, given.keep)

    def report(seed: int, outcome: Outcome) -> None:
        _say(f"seed {seed}: {_told(outcome)}")
        if given.save is not None:
            given.save.mkdir(parents=True, exist_ok=True)
            (given.save / f"{seed}.onnx").write_bytes(make(seed, **chances)[0])

    count = itertools.count(given.start)
    seeds = count if given.count is None else itertools.islice(count, given.count)
    start = time.monotonic()
    tally = run(iter(seeds), start + given.minutes * 60, report, **chances)
    total = sum(tally.outcomes.values())
    _say(f"{total} inputs in {time.monotonic() - start:.0f} s")
    for key, number in sorted(tally.outcomes.items(), key=lambda pair: -pair[1]):
        first = f" (first: seed {tally.finds[key][0]})" if key in tally.finds else ""
        _say(f"{number:7} {key}{first}")
    return 1 if tally.finds else 0


def _again(seed: int, folder: Path, chances: dict[str, float], keep: str | None) -> int:
    data, options = make(seed, **chances)
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{seed}.onnx"
    path.write_bytes(data)
    _say(f"{path}: {options}")
    outcome = judge(path, options)
    _say(f"{outcome.kind} {outcome.cause}\n{outcome.detail}")
    if keep is not None:
        _say(str(corpus.add(keep, data, options, f"{outcome.kind} {outcome.cause}".strip())))
    return int(outcome.is_find)


def _told(outcome: Outcome) -> str:
    lines = "\n".join(f"    {line}" for line in outcome.detail.splitlines()[-14:])
    return f"{outcome.kind} {outcome.cause}\n{lines}"


def _say(text: str) -> None:
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
