"""Arguments of an operator → a model with its placeholder → decomposed → onnxruntime → compared."""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING, Any

import numpy as np

from rewriter.decompose import decompose
from rewriter.errors import CannotVerifyError, DecompositionFault, RewriteError
from rewriter.execution.session import Session
from rewriter.execution.values import element_type, from_torch
from rewriter.placeholder import Case, Selection, TensorSpec
from rewriter.storage import ModelFile
from rewriter.testing.check import compare
from rewriter.testing.models import build
from rewriter.types import dtype_name
from rewriter.verify.compare import Tolerance, judge, measure

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from rewriter.placeholder import Placeholder


class Result(Enum):
    AGREES = "agrees"
    #: The pass says what it cannot do (a :class:`DecompositionError`).
    REFUSED = "refused"
    #: onnxruntime has no kernel for the dtype.
    NO_KERNEL = "no kernel"
    #: The operator itself raises in PyTorch.
    NO_REFERENCE = "no reference"
    DIFFERS = "differs"
    #: Anything else.
    BROKEN = "broken"


def case_of(placeholder: Placeholder, arguments: Mapping[str, Any]) -> Case:
    """The arguments (tensors of torch or numpy, Python values) as a case of the pass."""
    import torch

    def given(value: Any) -> Any:
        if isinstance(value, torch.Tensor):
            value = from_torch(value.resolve_conj().resolve_neg())
        if isinstance(value, np.ndarray):
            return TensorSpec(value.shape, dtype_name(element_type(value)), value=value)
        if isinstance(value, (tuple, list)) and value and isinstance(value[0], (torch.Tensor, np.ndarray)):
            return tuple(given(item) for item in value)
        return list(value) if isinstance(value, tuple) else value

    unknown = set(arguments) - set(placeholder.signature.names)
    if unknown:
        raise TypeError(
            f"pass '{placeholder.pass_name()}' has no parameters {sorted(unknown)}: adapt the sample"
        )
    made: dict[str, Any] = {}
    for parameter in placeholder.signature.parameters:
        value = arguments.get(parameter.name)
        if value is not None:
            made[parameter.name] = given(value)
        elif parameter.is_tensor and not parameter.is_constant and not parameter.variadic:
            made[parameter.name] = None
    return Case(**made)


def run(
    placeholder: Placeholder,
    arguments: Mapping[str, Any],
    expected: Sequence[Any],
    *,
    opset: int,
    symbolic: bool,
    tolerance: tuple[float, float] | None = None,
) -> tuple[Result, str]:
    """What comes out, and the difference or the message."""
    if len(expected) > len(placeholder.outputs):
        return (
            Result.BROKEN,
            f"{len(expected)} results are expected of a pass that has {len(placeholder.outputs)}",
        )
    try:
        case = case_of(placeholder, arguments)
        built = build(
            placeholder,
            case,
            dtype="float32",
            opset=opset,
            symbolic=symbolic,
            place="graph",
            outputs=len(expected),
        )
        with ModelFile.from_proto(built.model) as file:
            try:
                decompose(file, Selection((placeholder,), frozenset({placeholder.pass_name()})))
            except DecompositionFault:
                raise
            except RewriteError as error:
                return Result.REFUSED, str(error)
            left = {n.domain for n in file.model.graph.node} - {""}
            assert not left, f"nodes of {left} are left"
            try:
                found = Session(file, file.model).run(built.feeds, list(built.outputs))
            except CannotVerifyError as error:
                return Result.NO_KERNEL, str(error)
    except Exception as error:  # noqa: BLE001
        return Result.BROKEN, f"{type(error).__name__}: {error}"
    for name, want in zip(built.outputs, expected, strict=True):
        got = np.asarray(found[name])
        if tolerance is None:
            problem = compare(placeholder, got, want, lambda: built.arguments)
        else:
            problem = judge(got, want, measure(got, want), Tolerance(*tolerance))
        if problem is not None:
            return Result.DIFFERS, f"output '{name}' {problem}"
    return Result.AGREES, ""
