"""How an answer is held against what the reference of a pass says."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from rewriter.execution.numbers import is_float
from rewriter.verify.compare import Accepted, Beyond, judge, measure
from rewriter.verify.judgement import Judgement
from rewriter.verify.judges import picked_from, topk_ties

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from rewriter.execution.numbers import Array
    from rewriter.placeholder.contract import Placeholder
    from rewriter.verify.proof import Checked


#: No values by name.
_NOTHING: Mapping[str, Any] = {}


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
    taken: Mapping[str, Any] = _NOTHING,
) -> str | None:
    """Hold the results against the reference's; what is wrong, or None.  ``into`` records what was seen.

    ``judgement`` has the thresholds that were asked for and the outputs that are judged together, ``arguments`` gives
    those of the reference as arrays, ``taken`` what the region took by its name in the model.

    A pass that defines ``compare(actual, expected) -> str | None`` judges values by itself (matched detections, ties);
    dtypes and shapes have to be equal all the same.
    """
    if len(expected) < len(actual) and any(item is not None for item in actual[len(expected) :]):
        return f"the reference gives {len(expected)} results, the node has {len(actual)}"
    if len(expected) > len(placeholder.outputs):
        return f"the reference gives {len(expected)} results, the pass declares {len(placeholder.outputs)}"
    own = placeholder.compare if placeholder.compares else None
    judgement = judgement or Judgement()
    actual, together, judged = judgement.of_region(placeholder, names, actual, expected, taken)
    problems: list[str] = [f"'{name}' {problem}" for name, problem in together.items()]
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
        checked.judged = judged.get(name, "") if own is None else "by the pass"
        checked.add(metrics)
        if tolerance is not None:
            problem = judge(a, b, metrics, tolerance, judgement.terms(placeholder, arguments, b))
            if problem is not None:
                told = f"'{name}' {problem}"
                problems.append(Beyond(told, problem.atol) if isinstance(problem, Beyond) else told)
    if own is not None and not problems:
        more: tuple[Any, ...] = ()
        try:
            more = (arguments(),) if placeholder.compares_arguments else ()
            problem = own(tuple(actual), tuple(expected), *more)
        except Exception as error:  # noqa: BLE001  (a pass is anybody's code)
            problem = f"its compare() raised {type(error).__name__}: {error}"
        if problem is not None:
            problems.append(str(problem))
        elif into and not _is_installed(placeholder):
            _try_judge(lambda wrong: own(wrong, tuple(expected), *more), actual, expected, into[0])
    text = "; ".join(problems)
    if problems and own is None and not together:
        ties = _among_ties(names, actual, expected, taken.values())
        if ties:
            return Accepted(text, ties)
    if problems and all(isinstance(problem, Beyond) for problem in problems):
        return Beyond(text, max(problem.atol for problem in problems if isinstance(problem, Beyond)))
    return text or None


def _is_installed(placeholder: Placeholder) -> bool:
    """Whether the judge is one of ``passes/``, whose own tests show that it refuses what is wrong."""
    return type(placeholder).compare.__module__.partition(".")[0] == "passes"


def _try_judge(
    judge_of: Callable[[tuple[Array | None, ...]], Any],
    actual: Sequence[Array | None],
    expected: Sequence[Array | None],
    into: Checked,
) -> None:
    """Show a pass's judge answers that are wrong: the right elements in another order, and a single one throughout.

    On some values both may be right (ties), so a judge is accused only of what it refuses on none.
    """
    for kind, change in (("shuffled", _shuffled), ("constant", _constant)):
        if kind in into.refused:
            continue
        wrong = tuple(a if a is None else change(a) for a in actual)
        if all(a is None or b is None or np.array_equal(a, b) for a, b in zip(wrong, expected, strict=False)):
            continue
        try:
            refuses = judge_of(wrong) is not None
        except Exception:  # noqa: BLE001  (a pass is anybody's code; one that stumbles does not accept)
            refuses = True
        into.shown.add(kind)
        if refuses:
            into.refused.add(kind)


def _shuffled(array: Array) -> Array:
    """The elements in another order, the same one each time."""
    flat = array.reshape(-1)
    mixed = flat[np.random.default_rng(0).permutation(flat.size)]
    return (np.roll(flat, 1) if np.array_equal(mixed, flat) else mixed).reshape(array.shape)


def _constant(array: Array) -> Array:
    """One number throughout: the first, or another one where that is what stands there."""
    if not array.size:
        return array
    filled = np.full_like(array, array.reshape(-1)[0])
    if not np.array_equal(filled, array):
        return filled
    return np.zeros_like(array) if array.any() else np.ones_like(array)


def _among_ties(
    names: Sequence[str],
    actual: Sequence[Array | None],
    expected: Sequence[Array | None],
    taken: Iterable[Any],
) -> str:
    """The flag under which results that differ agree, being indices of equal values; "" where there is none."""
    pairs = [
        (n, a, b) for n, a, b in zip(names, actual, expected, strict=False) if a is not None and b is not None
    ]
    if any(a.dtype != b.dtype or a.shape != b.shape for _, a, b in pairs):
        return ""
    values = [pair for pair in pairs if is_float(pair[2].dtype) and pair[2].ndim]
    flags = []
    for name, a, b in pairs:
        if is_float(b.dtype) or (a == b).all():
            continue
        of = next(
            (v for v in values if topk_ties((v[1], a), (v[2], b), data=picked_from(v[2], taken)) is None),
            None,
        )
        if of is None or b.dtype.kind not in "iu":
            return ""
        flags.append(f"--compare {name}=topk:{of[0]}")
    return " ".join(flags)
