"""What the oracles say of a pass: ``python -m tests.oracles roll [--full]``."""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from typing import TYPE_CHECKING

from rewriter.placeholder.discovery import resolve
from tests.oracles import gradients, nodes, opinfo
from tests.oracles.run import Result
from tests.oracles.table import NodeRow, Row, Unrun, collected

if TYPE_CHECKING:
    from rewriter.placeholder import Placeholder


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.oracles", description=__doc__)
    parser.add_argument("passes", help="names, separated by commas")
    parser.add_argument("--full", action="store_true", help="every dtype, opset and symbolic sizes")
    options = parser.parse_args()
    write = sys.stdout.write
    for name in options.passes.split(","):
        placeholder = resolve(name)[0]
        row: Row
        for row in (r for r in collected("opinfo", "ROWS") if r.pass_name == name):
            for entry in row.entries:
                for setting in opinfo.settings(placeholder, entry, full=options.full):
                    listed: list[Unrun] = collected("opinfo", "UNRUN")
                    counts: Counter[str] = Counter()
                    for number, result, message in opinfo.outcomes(
                        placeholder, row, entry, setting, full=options.full
                    ):
                        counts[result.value] += 1
                        at = (name, entry, number, setting.dtype, setting.opset, setting.symbolic)
                        if result is not Result.AGREES and not any(u.covers(*at) for u in listed):
                            write(
                                f'  Unrun("{name}", "{entry}", Result.{result.name}, "…", samples=({number},)),'
                            )
                            write(f"  # {setting} {message[:400]}\n")
                    write(f"{name} {entry} {setting}: {dict(counts)}\n")
        node_row: NodeRow
        for node_row in (r for r in collected("nodes", "ROWS") if r.pass_name == name):
            counts = Counter()
            for case in nodes.examples_of(node_row):
                for opset in nodes.OPSETS:
                    for symbolic in (False, True):
                        result, message = nodes.outcome(placeholder, node_row, case, opset, symbolic=symbolic)
                        counts[result.value] += 1
                        if result is not Result.AGREES:
                            write(f'  Unrun("{name}", "{case.name}", Result.{result.name}, "…"),')
                            write(f"  # opset {opset} symbolic={symbolic} {message[:400]}\n")
            write(f"{name} node tests of {node_row.op_type}: {dict(counts)}\n")
        _gradients(name, placeholder, full=options.full)
    return 0


def _gradients(name: str, placeholder: Placeholder, *, full: bool) -> None:
    """What gradcheck says that is not listed."""
    write = sys.stdout.write
    undifferentiable: dict[str, str] = dict(collected("gradients", "NOT_DIFFERENTIABLE"))
    if name in undifferentiable:
        write(f"{name} gradcheck: not differentiable ({undifferentiable[name]})\n")
        return
    listed = [part for owner, part, _ in collected("gradients", "KINKS") if owner == name]
    counts: Counter[str] = Counter()
    for case, problem in gradients.checks(placeholder, full=full):
        covered = any(part in repr(case) for part in listed)
        counts[("listed" if covered else "differs") if problem else "agrees"] += 1
        if problem and not covered:
            write(f"  gradient {case}: {problem}\n")
    write(f"{name} gradcheck: {dict(counts)}\n")


if __name__ == "__main__":
    sys.exit(main())
