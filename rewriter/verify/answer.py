"""How an answer is held against what the reference of a pass says."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rewriter.verify.compare import judge, measure
from rewriter.verify.judgement import Judgement

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from rewriter.execution.numbers import Array
    from rewriter.placeholder.contract import Placeholder
    from rewriter.verify.proof import Checked


def own_remark(
    placeholder: Placeholder, arguments: Callable[[], Mapping[str, Any]], expected: Sequence[Array | None]
) -> list[str]:
    """What the pass says of agreement on its ``arguments``: nothing, or one clause."""
    if not placeholder.remarks:
        return []
    try:
        said = placeholder.says_little(arguments(), tuple(expected))
    except Exception as error:  # noqa: BLE001  (a pass is anybody's code)
        said = f"its says_little() raised {type(error).__name__}: {error}"
    return [] if said is None else [str(said)]


def check(
    placeholder: Placeholder,
    names: Sequence[str],
    actual: Sequence[Array | None],
    expected: Sequence[Array | None],
    into: Sequence[Checked],
    judgement: Judgement | None = None,
    arguments: Callable[[], Mapping[str, Any]] = dict,
) -> str | None:
    """Hold the results against the reference's; what is wrong, or None.  ``into`` records what was seen.

    ``judgement`` has the thresholds that were asked for, ``arguments`` gives those of the reference as arrays.

    A pass that defines ``compare(actual, expected) -> str | None`` judges values by itself (matched detections, ties);
    dtypes and shapes have to be equal all the same.
    """
    if len(expected) < len(actual) and any(item is not None for item in actual[len(expected) :]):
        return f"the reference gives {len(expected)} results, the node has {len(actual)}"
    if len(expected) > len(placeholder.outputs):
        return f"the reference gives {len(expected)} results, the pass declares {len(placeholder.outputs)}"
    own = placeholder.compare if placeholder.compares else None
    judgement = judgement or Judgement()
    problems = []
    for name, a, b, checked in zip(names, actual, expected, into, strict=False):
        if a is None:
            continue
        if b is None:
            problems.append(f"'{name}': the reference gives None for it")
            continue
        metrics = measure(a, b)
        tolerance = (
            None
            if own is not None and metrics.comparable
            else judgement.region(placeholder, metrics.expected_dtype)
        )
        checked.tolerance = tolerance
        checked.judged = "" if own is None else "by the pass"
        checked.add(metrics)
        if tolerance is not None:
            problem = judge(a, b, metrics, tolerance, judgement.terms(placeholder, arguments, b))
            if problem is not None:
                problems.append(f"'{name}' {problem}")
    if own is not None and not problems:
        try:
            more = (arguments(),) if placeholder.compares_arguments else ()
            problem = own(tuple(actual), tuple(expected), *more)
        except Exception as error:  # noqa: BLE001  (a pass is anybody's code)
            problem = f"its compare() raised {type(error).__name__}: {error}"
        if problem is not None:
            problems.append(str(problem))
    return "; ".join(problems) or None
