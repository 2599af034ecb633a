"""What PyTorch says: a pass's reference on given tensors, and how an answer is held against it."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import numpy as np

from rewriter.errors import CannotVerifyError, VerificationError
from rewriter.placeholder.binding import Bound, Ref
from rewriter.verify.compare import judge, measure
from rewriter.verify.judgement import Judgement
from rewriter.verify.values import from_torch, to_torch

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from rewriter.placeholder.contract import Placeholder
    from rewriter.verify.compare import Tolerance
    from rewriter.verify.numbers import Array
    from rewriter.verify.proof import Checked


#: What torch says where an operator exists, but not in a narrow format on the CPU.
_LACKS_FORMAT = re.compile(r"not implemented for|Half|BFloat16|Float8")


class ReferenceRefused(VerificationError):  # noqa: N818  (an outcome of a sample, handled by whoever drew it)
    """The reference raised on these inputs."""

    code = "reference-refused"


def require_torch() -> str:
    """torch's version; CannotVerifyError where it is not installed."""
    try:
        import torch
    except ImportError as error:
        raise CannotVerifyError(
            "PyTorch is not installed, so the replaced operators cannot be compared with it",
            remedy="pip install onnx-rewrite[torch], or pass --no-verify to deliver it unverified",
        ) from error
    return str(torch.__version__)


def evaluate(placeholder: Placeholder, bound: Bound, value_of: Callable[[Ref], Array]) -> list[Array | None]:
    """The reference's results on the values of the tensor arguments; ReferenceRefused where it raises."""
    narrow: list[Any] = []

    def tensor(array: Array, wide: bool) -> Any:
        made = to_torch(array)
        if made.is_floating_point() and made.element_size() < 4:
            narrow.append(made.dtype)
            return made.float() if wide else made
        return made

    def argument(item: Any, wide: bool) -> Any:
        if isinstance(item, Ref):
            return tensor(np.asarray(value_of(item)), wide)
        if isinstance(item, tuple):
            return tuple(argument(part, wide) for part in item)
        if isinstance(item, np.ndarray):
            return tensor(item, wide)  # a parameter that is a known tensor
        return item

    def call(*, wide: bool) -> list[Any]:
        given = {name: argument(item, wide) for name, item in bound.arguments.items()}
        result = _call(placeholder, given)
        return list(result) if isinstance(result, (tuple, list)) else [result]

    try:
        results = call(wide=False)
    except ReferenceRefused as error:
        if not narrow or not _LACKS_FORMAT.search(error.what):
            raise
        # torch lacks the operator in this format on the CPU: computed in float32, and rounded once.
        dtype = narrow[0]
        results = [_narrowed(item, dtype) for item in call(wide=True)]
    return [None if item is None else _array(item) for item in results]


def _call(placeholder: Placeholder, given: Mapping[str, Any]) -> Any:
    import torch

    try:
        with torch.no_grad():
            return call_reference(placeholder, given)
    except Exception as error:
        raise ReferenceRefused(f"{type(error).__name__}: {error}") from error


def call_reference(placeholder: Placeholder, given: Mapping[str, Any]) -> Any:
    """The reference on arguments by name, a variadic one as a tuple; whatever it raises."""
    positional: list[Any] = []
    named: dict[str, Any] = {}
    variadic = next((p.name for p in placeholder.signature.parameters if p.variadic), None)
    for name, item in given.items():
        if name == variadic:
            positional += item
            variadic = None
        elif variadic is not None:
            positional.append(item)  # what precedes a variadic parameter can only be given by position
        else:
            named[name] = item
    return placeholder.reference(*positional, **named)


def _narrowed(item: Any, dtype: Any) -> Any:
    import torch

    return item.to(dtype) if isinstance(item, torch.Tensor) and item.dtype == torch.float32 else item


def _array(item: Any) -> Array:
    return from_torch(item) if hasattr(item, "detach") else np.asarray(item)


def plain_arguments(bound: Bound, value_of: Callable[[Ref], Array]) -> dict[str, Any]:
    """The arguments by parameter name, tensors as numpy arrays."""

    def plain(argument: Any) -> Any:
        if isinstance(argument, Ref):
            return np.asarray(value_of(argument))
        return tuple(plain(item) for item in argument) if isinstance(argument, tuple) else argument

    return {name: plain(argument) for name, argument in bound.arguments.items()}


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


def tolerance_of(placeholder: Placeholder, dtype: str) -> Tolerance:
    """The pass's own tolerance for a dtype, or the default one of a region."""
    return Judgement().region(placeholder, dtype)


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
            problem = judge(a, b, metrics, tolerance)
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
