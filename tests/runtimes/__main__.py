"""A table of what each runtime makes of a pass: ``python -m tests.runtimes roll,swish``."""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

from rewriter.placeholder.discovery import resolve
from tests.runtimes.drive import Result, run, trials
from tests.runtimes.environments import ROOT, environments
from tests.runtimes.faults import known_faults


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.runtimes", description=__doc__)
    parser.add_argument("passes", help="names, separated by commas")
    parser.add_argument("--runtimes", default="", help="some of them, separated by commas")
    parser.add_argument("--old", type=Path, default=ROOT / ".venv-ort115", help="where onnxruntime 1.15.1 is")
    parser.add_argument("-v", "--verbose", action="store_true", help="every line, not only those that differ")
    options = parser.parse_args()
    places = environments(options.old)
    if options.runtimes:
        places = [p for p in places if p.runtime in options.runtimes.split(",")]
    write = sys.stdout.write
    bad = 0
    for name in options.passes.split(","):
        placeholder = resolve(name)[0]
        with tempfile.TemporaryDirectory() as folder:
            findings = run(trials(placeholder), places, Path(folder))
        counts = {p.runtime: dict.fromkeys(Result, 0) for p in places}
        for trial, by_runtime in findings:
            for runtime, finding in by_runtime.items():
                counts[runtime][finding.result] += 1
                known = any(f.covers(runtime, trial) for f in known_faults())
                if finding.result is not Result.RIGHT or options.verbose:
                    bad += finding.result is not Result.RIGHT and not known
                    note = " (listed)" if known else ""
                    write(f"{runtime:19} {finding.result.value:8}{note} {trial}\n    {finding.what}\n")
        write(f"{name}: {len(findings)} models\n")
        for runtime, found in counts.items():
            told = ", ".join(f"{count} {result.value}" for result, count in found.items() if count)
            write(f"  {runtime:19} {told}\n")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
