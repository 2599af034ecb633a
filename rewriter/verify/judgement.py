"""How values are judged: within which thresholds, and which outputs together by what they mean."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from rewriter.errors import UsageError
from rewriter.verify.compare import REGION, WHOLE, Thresholds, Tolerance, judge, measure, tolerance_for
from rewriter.verify.judges import Misfit, pair_rows, picked_from, settle_ties
from rewriter.verify.kernels import allowance

if TYPE_CHECKING:
    from collections.abc import Iterable

    from rewriter.execution.numbers import Array
    from rewriter.execution.values import Data
    from rewriter.placeholder.contract import Placeholder
    from rewriter.verify.proof import Checked

#: What a caller may give in the place of a judge's name: as a pass's ``compare``.
Function = Callable[[tuple[Any, ...], tuple[Any, ...]], "str | None"]


@dataclass(frozen=True)
class Comparison:
    """Outputs that are judged together: ``how`` is ``"detections"``, ``"topk"`` or ``"function"``."""

    outputs: tuple[str, ...]
    how: str
    #: Of a top-k, the outputs that hold the values and (perhaps) what they were picked from.
    others: tuple[str, ...] = ()
    function: Function | None = None

    @classmethod
    def parse(cls, text: str) -> Comparison:
        """``"boxes,scores,labels=detections"``, ``"indices=topk:values"``; UsageError for anything else."""
        names, separator, form = text.rpartition("=")
        outputs = tuple(name.strip() for name in names.split(","))
        how, *others = form.split(":")
        fits = (how == "detections" and not others) or (
            how == "topk" and len(others) in (1, 2) and all(others)
        )
        if not separator or not all(outputs) or not fits or (how == "topk" and len(outputs) != 1):
            raise UsageError(
                f"'{text}' is no comparison of outputs",
                remedy="write boxes,scores,labels=detections, or indices=topk:VALUES[:DATA], where VALUES and DATA are "
                "other outputs",
            )
        return cls(outputs, how, tuple(others))

    @property
    def names(self) -> tuple[str, ...]:
        """All outputs that it reads."""
        return (*self.outputs, *self.others)

    def __str__(self) -> str:
        return ":".join((self.how, *self.others))

    def settle(
        self,
        actual: Mapping[str, Array],
        expected: Mapping[str, Array],
        allowed: Callable[[str], Tolerance],
        taken: Iterable[Any] = (),
    ) -> tuple[dict[str, Array], str | None]:
        """The outputs of ``actual`` as ``expected`` has them, where order does not matter, and what is wrong.

        All are of equal dtypes and shapes.  ``taken`` are arrays one of which a top-k may have picked from.
        """
        a, b = ([side[name] for name in self.outputs] for side in (actual, expected))
        if self.function is not None:
            try:
                problem = self.function(tuple(a), tuple(b))
            except Exception as error:
                names = ", ".join(self.outputs)
                raise UsageError(
                    f"the function that compares '{names}' raises {type(error).__name__}: {error}",
                    remedy="correct it: it takes two tuples of arrays, and returns None or what is wrong",
                ) from error
            return dict(zip(self.outputs, a, strict=True)), None if problem is None else str(problem)
        if self.how == "detections":
            settled, problem = pair_rows(a, b, allowed)
            self._require_fit(problem)
            return dict(zip(self.outputs, settled, strict=True)), problem
        values, *data = self.others
        picked = actual[data[0]] if data else picked_from(expected[values], taken)
        settled, problem = settle_ties(
            (actual[values], *a), (expected[values], *b), data=picked, allowed=allowed
        )
        self._require_fit(problem)
        return {self.outputs[0]: settled[1]}, problem

    def _require_fit(self, problem: str | None) -> None:
        """UsageError where these outputs cannot be judged in this way."""
        if isinstance(problem, Misfit):
            raise UsageError(
                f"--compare {','.join(self.outputs)}={self}: {problem}",
                remedy="name outputs that belong together, or leave it out",
            )


def comparisons(asked: Any) -> tuple[Comparison, ...]:
    """What was asked for, read: texts, or a mapping from outputs to a judge's name or a function."""
    if asked is None:
        return ()
    found: list[Comparison] = []
    if isinstance(asked, Mapping):
        for outputs, how in asked.items():
            names = (
                tuple(name.strip() for name in outputs.split(","))
                if isinstance(outputs, str)
                else tuple(outputs)
            )
            if callable(how):
                found.append(Comparison(names, "function", function=how))
            else:
                found.append(Comparison.parse(f"{','.join(names)}={how}"))
    else:
        items = [asked] if isinstance(asked, (str, Comparison)) else asked
        found += [item if isinstance(item, Comparison) else Comparison.parse(str(item)) for item in items]
    taken: set[str] = set()
    for comparison in found:
        for name in comparison.outputs:
            if name in taken:
                raise UsageError(f"output '{name}' is compared in two ways", remedy="leave out either")
            taken.add(name)
    return tuple(found)


@dataclass(frozen=True)
class Judgement:
    """The thresholds that were asked for, and the outputs that are judged together."""

    thresholds: Thresholds = field(default_factory=Thresholds)
    comparisons: tuple[Comparison, ...] = ()

    def check(self, outputs: Sequence[str]) -> None:
        """UsageError where a comparison names no output of the graph."""
        for comparison in self.comparisons:
            for name in comparison.names:
                if name not in outputs:
                    raise UsageError(
                        f"--compare: the model has no output '{name}'",
                        remedy=f"its outputs are: {', '.join(outputs)}",
                    )

    def whole(self, dtype: str) -> Tolerance:
        """What outputs are allowed."""
        return self.thresholds.override(tolerance_for(dtype, WHOLE), dtype)

    def region(self, placeholder: Placeholder, dtype: str) -> Tolerance:
        """What a placeholder is allowed against its reference: what was asked for, the pass's own, or the default."""
        if dtype in placeholder.tolerances:
            rtol, atol = placeholder.tolerances[dtype]
            stated = Tolerance(rtol, atol, reason=f"stated by pass '{placeholder.pass_name()}'")
        else:
            stated = tolerance_for(dtype, REGION)
        return self.thresholds.override(stated, dtype)

    def terms(
        self, placeholder: Placeholder, arguments: Callable[[], Mapping[str, Any]], expected: Array
    ) -> Callable[[], Array | None] | None:
        """What kernels' errors allow a placeholder's result besides, to be asked for; None where nothing is said.

        Thresholds that were asked for hold alone.
        """
        if self.thresholds or not placeholder.has_terms:
            return None
        return partial(allowance, placeholder, arguments, expected)

    def differs(self, found: Data, expected: Data, into: Checked | None = None) -> str | None:
        """What is wrong with a value (a tensor, a sequence or a map of them, or nothing); None where it agrees.

        ``into`` takes note of what was seen.
        """
        if expected is None or found is None:
            if into is not None:
                into.note("absent")
            return None if expected is found else "is absent from one of the two"
        if isinstance(expected, Mapping):
            if not isinstance(found, Mapping) or list(found) != list(expected):
                return "has other keys"
            return self._each(list(found.values()), list(expected.values()), into)
        if isinstance(expected, (list, tuple)):
            if not isinstance(found, (list, tuple)) or len(found) != len(expected):
                return f"has {len(found)} elements, expected {len(expected)}"
            return self._each(found, expected, into)
        a, b = np.asarray(found), np.asarray(expected)
        metrics = measure(a, b)
        tolerance = self.whole(metrics.expected_dtype)
        if into is not None:
            into.tolerance = tolerance
            into.add(metrics)
        return judge(a, b, metrics, tolerance)

    def _each(self, found: Sequence[Data], expected: Sequence[Data], into: Checked | None) -> str | None:
        if not expected and into is not None:
            into.note("empty")
        problems = [self.differs(a, b, into) for a, b in zip(found, expected, strict=True)]
        return next((problem for problem in problems if problem is not None), None)

    def of_region(
        self,
        placeholder: Placeholder,
        names: Sequence[str],
        actual: Sequence[Array | None],
        expected: Sequence[Array | None],
        taken: Mapping[str, Data],
    ) -> tuple[list[Array | None], dict[str, str], dict[str, str]]:
        """``actual`` as ``expected`` has it where results of a region are outputs that are judged together.

        ``names`` are those of the results, ``taken`` has what the region took by name.  What is wrong is given by name,
        and so is how a result was judged.
        """
        if not self.comparisons:
            return list(actual), {}, {}
        found: dict[str, Data] = {**taken, **_named(names, actual)}
        wanted: dict[str, Data] = {**taken, **_named(names, expected)}
        problems: dict[str, str] = {}
        judged: dict[str, str] = {}
        for comparison in self.comparisons:
            if set(comparison.outputs) <= set(names) and _comparable(comparison.names, found, wanted):
                settled, problem = comparison.settle(
                    found, wanted, partial(self.region, placeholder), taken.values()
                )
                found |= settled
                judged |= dict.fromkeys(comparison.outputs, str(comparison))
                if problem is not None:
                    problems[comparison.outputs[0]] = problem
                if problem is not None or comparison.function is not None:
                    found |= {name: wanted[name] for name in comparison.outputs}
        return [_array(found.get(name)) for name in names], problems, judged

    def outputs(
        self, found: Mapping[str, Data], expected: Mapping[str, Data], into: Mapping[str, Checked]
    ) -> dict[str, str]:
        """What is wrong with each of the outputs ``expected``, by name; empty where all agree."""
        found = dict(found)
        problems: dict[str, str] = {}
        excused: set[str] = set()
        for comparison in self.comparisons:
            if not _comparable(comparison.names, found, expected):
                continue  # what is wrong is said of each of them
            settled, problem = comparison.settle(found, expected, self.whole)
            found |= settled
            if problem is not None:
                problems[comparison.outputs[0]] = problem
            if problem is not None or comparison.function is not None:
                excused.update(comparison.outputs)
            for name in comparison.outputs:
                if name in into:
                    into[name].judged = str(comparison)
        for name, want in expected.items():
            problem = self.differs(found[name], want, into.get(name))
            if problem is not None and name not in excused:
                problems[name] = problem
        return problems


def _array(value: Data) -> Array | None:
    return value if isinstance(value, np.ndarray) else None


def _named(names: Sequence[str], values: Sequence[Array | None]) -> dict[str, Array]:
    return {n: v for n, v in zip(names, values, strict=False) if n and v is not None}


def _comparable(names: Iterable[str], found: Mapping[str, Data], expected: Mapping[str, Data]) -> bool:
    """Whether both sides have tensors of these names, of equal dtypes and shapes."""
    for name in names:
        a, b = found.get(name), expected.get(name)
        if not isinstance(a, np.ndarray) or not isinstance(b, np.ndarray):
            return False
        if a.dtype != b.dtype or a.shape != b.shape:
            return False
    return True
