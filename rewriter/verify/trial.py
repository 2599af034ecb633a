"""One region on one set of probe values: what both sides give, and whether a difference counts.

At extreme values PyTorch itself is far off, so a difference counts only where rounding does not explain it:

1. It counts where it is larger than what moving the inputs by some units in the last place makes of the reference.
2. Where the inputs are exact (ties, halves, constants of the region), it counts also where every comparison and
   rounding of the decomposition gets exact numbers: those of float32 are those of float64.
3. It does not count where the decomposition agrees with the reference as it computes in float64: PyTorch is then the
   one that rounds, or overflows.
4. Where the inputs or the results hold NaN or infinities, it does not count if the decomposition is right as PyTorch
   computes its operators: ONNX does not say what a kernel makes of NaN.
5. What the reference makes NaN of infinities alone does not count: it is infinity less infinity, on its own way there.
6. It does not count where inputs hold equal numbers, and PyTorch leaves their order open (an unstable sort).

Where the inputs are float16 or bfloat16, the nodes are also run with every one of them rounding to its own type, which
onnxruntime does not do on a CPU.  There only what is far off counts: an overflow, a sum that vanished.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any

import numpy as np
from onnx import helper

from rewriter.errors import CannotVerifyError, RewriteError
from rewriter.execution.numbers import is_float, to_float64
from rewriter.execution.reference import ReferenceRefused, evaluate, plain_arguments
from rewriter.inputs.draw import generator
from rewriter.placeholder.binding import Bound, Ref
from rewriter.verify.answer import check
from rewriter.verify.proof import Checked
from rewriter.verify.regions import outputs_of

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from onnx import ModelProto, NodeProto

    from rewriter.decompose import Region
    from rewriter.execution.numbers import Array
    from rewriter.execution.session import Session
    from rewriter.execution.weights import Weights
    from rewriter.verify.options import VerifyOptions

#: By how many units in the last place inputs are moved, and how often what that makes of the reference is allowed.
_UNITS, _SLACK = 4.0, 16.0
#: What narrow formats are allowed where every node rounds: a part of the largest number, and units of 1.
_FAR, _FAR_UNITS = 0.05, 8.0
#: Operators whose result jumps where an input crosses a number, or where two inputs are equal.
_JUMPS = frozenset(
    {
        "ArgMax",
        "ArgMin",
        "BitShift",
        "Cast",
        "Ceil",
        "Equal",
        "Floor",
        "Greater",
        "GreaterOrEqual",
        "Hardmax",
        "IsInf",
        "Less",
        "LessOrEqual",
        "MaxPool",
        "Mod",
        "NonMaxSuppression",
        "NonZero",
        "QuantizeLinear",
        "Round",
        "Sign",
        "TopK",
        "Unique",
    }
)
#: Functions of PyTorch that leave open in which order equal elements come.
_UNORDERED = ("aten::sort", "aten::topk", "aten::argsort", "aten::kthvalue", "aten::median", "aten::mode")
_NARROW = ("float16", "bfloat16")


@dataclass(frozen=True)
class Values:
    """What the values of a trial are: exact, not finite, worth a look in float64, of a narrow format."""

    exact: bool = False
    unbounded: bool = False
    wide: bool = True
    narrow: bool = False


class Trial:
    """Tries values on the nodes of ``model``, which are those of ``region`` alone."""

    def __init__(
        self, weights: Weights, region: Region, model: ModelProto, session: Session, options: VerifyOptions
    ) -> None:
        self.weights, self.region, self.model = weights, region, model
        self.session, self.options = session, options
        #: The arguments; other than the region's where constants were redrawn.
        self.bound: Bound = region.bound
        self.names = outputs_of(region)

    # --- both sides -----------------------------------------------------------------------------------------

    def expected(self, feeds: Mapping[str, Array]) -> list[Array | None]:
        """What the reference says; ReferenceRefused, TypeError or CannotVerifyError where it says nothing."""
        with np.errstate(all="ignore"):
            return evaluate(self.region.placeholder, self.bound, partial(value_of, feeds=feeds))

    def actual(self, feeds: Mapping[str, Array]) -> list[Array | None]:
        """What onnxruntime makes of the nodes; Refused or CannotVerifyError."""
        return self._ordered(self.session.run(feeds))

    def interpreted(self, feeds: Mapping[str, Array]) -> list[Array | None] | None:
        """What PyTorch makes of the nodes, each of which rounds to its own type; None where it cannot."""
        if self._interpreter is None:
            return None
        from rewriter.execution.values import from_torch, to_torch

        try:
            found = self._interpreter({name: to_torch(array) for name, array in feeds.items()})
            return self._ordered({name: from_torch(value) for name, value in found.items()})
        except (RewriteError, TypeError, AttributeError):
            return None

    def _ordered(self, found: Mapping[str, Any]) -> list[Array | None]:
        values = {n.removesuffix(":out") if n not in self.names else n: value for n, value in found.items()}
        return [values.get(name) if name else None for name in self.names]

    @cached_property
    def _interpreter(self) -> Any:
        from rewriter.interpret import Interpreter

        try:
            return Interpreter(self.model, file=self.weights.file)
        except (RewriteError, TypeError):
            return None

    # --- the verdict ----------------------------------------------------------------------------------------

    def problem(self, feeds: Mapping[str, Array], values: Values) -> str | None:
        """What is wrong on these values, in a clause; None where both agree, or rounding explains it.

        ReferenceRefused and Refused where a side does not take them.
        """
        expected = self.expected(feeds)
        found = self._problem(self.actual(feeds), expected, feeds, values)
        if found is not None or not values.narrow or values.unbounded:
            return found
        if not any(b is not None and b.dtype.name in _NARROW for b in expected):
            return None
        rounded = self.interpreted(feeds)
        if rounded is None or not any(map(_is_far_off, rounded, expected)):
            return None
        said = self._problem(rounded, expected, feeds, values)
        return None if said is None else f"where every operator rounds to its own type: {said}"

    def _problem(
        self,
        actual: Sequence[Array | None],
        expected: Sequence[Array | None],
        feeds: Mapping[str, Array],
        values: Values,
    ) -> str | None:
        if self._same(actual, expected):
            return None
        if values.unbounded and not any(map(_has_nan, feeds.values())):
            actual = [_nan_as(a, b) for a, b in zip(actual, expected, strict=False)]
        said = self._check(actual, expected, feeds)
        if said is None:
            return None
        if any(map(_has_ties, feeds.values())) and self._leaves_order_open(feeds):
            return None
        settled = values.exact and self._is_exact(feeds)
        if not settled and not self._beyond_rounding(feeds, actual, expected):
            return None
        # A constant of float32 is not that of float64: on it, only what jumps is settled, and by itself.
        if not (settled and not values.wide) and self._is_truer(feeds, actual, expected):
            return None
        if values.unbounded or not all(map(_is_finite, actual)):
            other = self.interpreted(feeds)
            if other is not None and self._check(other, expected, feeds) is None:
                return None
        return said

    def _same(self, actual: Sequence[Array | None], expected: Sequence[Array | None]) -> bool:
        """Whether all bytes are equal, which is soon seen, and often so."""
        return len(actual) == len(expected) and all(
            a is not None
            and b is not None
            and a.dtype == b.dtype
            and a.shape == b.shape
            and a.dtype.kind in "biuf"
            and a.tobytes() == b.tobytes()
            for a, b in zip(actual, expected, strict=True)
        )

    def _check(
        self,
        actual: Sequence[Array | None],
        expected: Sequence[Array | None],
        feeds: Mapping[str, Array],
    ) -> str | None:
        scratch = [Checked(name) for name in self.names]
        given = partial(plain_arguments, self.bound, partial(value_of, feeds=feeds))
        with np.errstate(all="ignore"):
            return check(
                self.region.placeholder,
                self.names,
                actual,
                expected,
                scratch,
                self.options.judgement,
                given,
                feeds,
            )

    def agrees(
        self, found: Sequence[Array | None], expected: Sequence[Array | None], feeds: Mapping[str, Array]
    ) -> bool:
        """Whether results of the nodes are the reference's."""
        return self._check(found, expected, feeds) is None

    # --- what rounding explains -----------------------------------------------------------------------------

    def _beyond_rounding(
        self, feeds: Mapping[str, Array], actual: Sequence[Array | None], expected: Sequence[Array | None]
    ) -> bool:
        """Whether the difference is more than rounding the inputs otherwise makes."""
        moved = {name: _moved(array, self.options.seed) for name, array in feeds.items()}
        try:
            others = self.expected(moved)
        except (ReferenceRefused, CannotVerifyError, TypeError):
            return False
        if len(others) != len(expected):
            return False
        triples = list(zip(actual, expected, others, strict=False))
        if any(b is not None and (c is None or b.shape != c.shape) for _, b, c in triples):
            return False  # what there is depends on rounding
        if self.region.placeholder.compares:
            return self._check(actual, others, moved) is not None
        # Terms of the inputs' size may have cancelled.
        size = max((_largest(array) for array in feeds.values()), default=0.0)
        return any(
            self._differs(a, b, c, size, feeds)
            for a, b, c in triples
            if a is not None and b is not None and c is not None
        )

    def _is_truer(
        self, feeds: Mapping[str, Array], actual: Sequence[Array | None], expected: Sequence[Array | None]
    ) -> bool:
        """Whether the results are those of the reference on the same numbers in float64, rounded once."""
        if not any(is_float(array.dtype) and array.dtype.kind != "c" for array in feeds.values()):
            return False

        def widened(array: Array) -> Array:
            return to_float64(array) if is_float(array.dtype) and array.dtype.kind != "c" else array

        bound = Bound({name: _changed(item, widened) for name, item in self.bound.arguments.items()})
        wide = {name: widened(array) for name, array in feeds.items()}
        try:
            found = evaluate(self.region.placeholder, bound, partial(value_of, feeds=wide))
        except (ReferenceRefused, CannotVerifyError, TypeError):
            return False
        if len(found) != len(expected):
            return False
        with np.errstate(all="ignore"):
            rounded = [
                a if a is None or b is None else a.astype(b.dtype)
                for a, b in zip(found, expected, strict=True)
            ]
        return self._check(actual, rounded, feeds) is None

    def _differs(
        self, actual: Array, expected: Array, other: Array, size: float, feeds: Mapping[str, Array]
    ) -> bool:
        if actual.dtype != expected.dtype or actual.shape != expected.shape:
            return True
        if not is_float(expected.dtype):
            return bool(((actual != expected) & (expected == other)).any())
        a, b, c = (to_float64(array) for array in (actual, expected, other))
        finite = np.isfinite(b) & np.isfinite(c)
        with np.errstate(all="ignore"):
            # Where rounding decides whether there is a number at all, nothing is said.
            settled = finite | (b == c) | (np.isnan(b) & np.isnan(c))
            own = float(np.abs(b - c)[finite].max()) if finite.any() else 0.0
            scale = float(np.abs(b[finite]).max()) if finite.any() else 0.0
            tolerance = self.options.judgement.region(self.region.placeholder, expected.dtype.name)
            allowed = tolerance.atol + tolerance.rtol * np.abs(b) + tolerance.scaled * scale + _SLACK * own
            allowed = allowed + _UNITS * _epsilon(expected.dtype) * size
            given = partial(plain_arguments, self.bound, partial(value_of, feeds=feeds))
            terms = self.options.judgement.terms(self.region.placeholder, given, expected)
            more = None if terms is None else terms()
            allowed = allowed if more is None else allowed + more
            off = np.where(finite, ~(np.abs(a - b) <= allowed), ~((a == b) | (np.isnan(a) & np.isnan(b))))
        return bool((off & settled).any())

    def _is_exact(self, feeds: Mapping[str, Array]) -> bool:
        """Whether there are operators that jump, and every one gets exact numbers."""
        jumps = {
            name
            for node in self.model.graph.node
            if node.op_type in _JUMPS and not node.domain and not _is_widening(node)
            for name in node.input
            if name
        }
        if not jumps or self._interpreter is None:
            return False
        import torch

        from rewriter.execution.values import to_torch
        from rewriter.interpret import Interpreter

        try:
            tensors = {name: to_torch(array) for name, array in feeds.items()}
            known = {*self._interpreter.parameters, *self._interpreter.inputs}
            computed = {name for node in self.model.graph.node for name in node.output}
            wanted = sorted(name for name in jumps if name in computed or name in known)
            plain = self._interpreter(tensors, wanted)
            wide = Interpreter(self.model, file=self.weights.file, dtype=torch.float64)(tensors, wanted)
        except (RewriteError, TypeError):
            return False
        return all(
            torch.equal(plain[name].double(), wide[name].double())
            for name in wanted
            if isinstance(plain[name], torch.Tensor)
        )

    def _leaves_order_open(self, feeds: Mapping[str, Array]) -> bool:
        """Whether the reference sorts without saying in which order equal elements come."""
        from torch.utils._python_dispatch import TorchDispatchMode

        seen: list[str] = []

        class Spy(TorchDispatchMode):  # type: ignore[no-untyped-call]
            def __torch_dispatch__(
                self, func: Any, types: Any, args: Any = (), kwargs: Mapping[str, Any] | None = None
            ) -> Any:
                seen.append(func._schema.name + (":stable" if "stable" in func._overloadname else ""))
                return func(*args, **(kwargs or {}))

        with Spy():  # type: ignore[no-untyped-call]
            self.expected(feeds)
        return any(name in _UNORDERED for name in seen)


def value_of(ref: Ref, feeds: Mapping[str, Array]) -> Array:
    """The value of a tensor argument."""
    if ref.constant is not None:
        return ref.constant
    if ref.name not in feeds:
        raise CannotVerifyError(f"the argument '{ref.name}' of a region has no value")
    return feeds[ref.name]


def _is_widening(node: NodeProto) -> bool:
    """Whether it is a Cast to a floating-point type."""
    return node.op_type == "Cast" and any(
        a.name == "to" and is_float(helper.tensor_dtype_to_np_dtype(a.i)) for a in node.attribute
    )


def _changed(argument: Any, change: Callable[[Array], Array]) -> Any:
    """An argument with the constants in it changed."""
    if isinstance(argument, Ref):
        return (
            argument if argument.constant is None else replace(argument, constant=change(argument.constant))
        )
    if isinstance(argument, tuple):
        return tuple(_changed(item, change) for item in argument)
    return change(argument) if isinstance(argument, np.ndarray) else argument


def _is_far_off(actual: Array | None, expected: Array | None) -> bool:
    """Whether a number is off by far more than the roundings of a narrow format make it."""
    if actual is None or expected is None:
        return actual is not expected
    if actual.shape != expected.shape or actual.dtype != expected.dtype:
        return True
    if not is_float(expected.dtype) or expected.dtype.kind == "c":
        return False
    a, b = to_float64(actual), to_float64(expected)
    finite = np.isfinite(b)
    scale = float(np.abs(b[finite]).max(initial=0.0))
    with np.errstate(all="ignore"):
        near = np.abs(a - b) <= _FAR * np.maximum(np.abs(b), scale) + _FAR_UNITS * _epsilon(expected.dtype)
    return bool((finite & ~near).any())


def _has_nan(array: Array) -> bool:
    return is_float(array.dtype) and bool(np.isnan(to_float64(array)).any())


def _nan_as(actual: Array | None, expected: Array | None) -> Array | None:
    """``actual`` with NaN where only the reference has it: infinity less infinity, on its own way to the result."""
    if actual is None or expected is None or actual.shape != expected.shape or actual.dtype != expected.dtype:
        return actual
    return np.where(np.isnan(expected), expected, actual) if expected.dtype.kind == "f" else actual


def _has_ties(array: Array) -> bool:
    return array.dtype.kind in "biuf" and np.unique(array).size < array.size


def _is_finite(array: Array | None) -> bool:
    return array is None or not is_float(array.dtype) or bool(np.isfinite(to_float64(array)).all())


def _epsilon(dtype: np.dtype[Any]) -> float:
    return float(np.finfo(dtype).eps) if dtype.kind == "f" else 2.0**-7


def _largest(array: Array) -> float:
    """The largest magnitude of a floating-point input that is not a filling."""
    if not is_float(array.dtype) or array.dtype.kind == "c" or not array.size:
        return 0.0
    size = np.abs(to_float64(array))
    return float(np.where(np.isfinite(size) & (size < 1e4), size, 0.0).max())


def _moved(array: Array, seed: int) -> Array:
    """Floating-point numbers, each moved up or down by a few units in the last place."""
    if not is_float(array.dtype) or array.dtype.kind == "c":
        return array
    rng = generator(seed, 0, f"moved {array.size}")
    step = _UNITS * _epsilon(array.dtype)
    with np.errstate(all="ignore"):
        moved = to_float64(array) * (1 + step * rng.choice((-1.0, 1.0), array.shape))
        return moved.astype(array.dtype)
