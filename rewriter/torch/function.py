"""The autograd.Function behind an operator: its own gradient in eager mode, its node in ``dynamo=False``."""

from __future__ import annotations

from dataclasses import dataclass
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import torch

from rewriter.torch.exporters import is_tracing, untraced
from rewriter.torch.legacy import emit_legacy
from rewriter.torch.results import flatten, form

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from rewriter.torch.arguments import Call
    from rewriter.torch.operator import PlaceholderFunction


@dataclass(frozen=True)
class Context:
    """What an operator's own backward sees of its forward."""

    #: The forward's arguments by name: ``ctx.inputs.x``.
    inputs: SimpleNamespace
    #: The forward's results, in order.
    outputs: tuple[torch.Tensor, ...]
    #: Whether each tensor argument given needs a gradient, in order.
    needs_input_grad: tuple[bool, ...]


class Spec:
    """Shape and dtype of a tensor, without the tensor."""

    def __init__(self, tensor: torch.Tensor) -> None:
        if is_tracing():
            with untraced():
                self.shape = tuple(tensor.shape)
        else:
            self.shape = tuple(int(size) for size in tensor.shape)
        self.dtype = tensor.dtype


class Application:
    """One application of an operator.

    It travels through autograd and the tracer as an opaque argument: both carry tensors and flat lists of
    ints only. It holds no tensor: a result that is reachable from its own gradient function would never be
    freed.
    """

    def __init__(self, operator: PlaceholderFunction, call: Call) -> None:
        self.operator = operator
        self.attributes = call.attributes
        #: For each ONNX input, whether it is given.
        self.given = tuple(value is not None for value in call.inputs.values())
        self.names = tuple(call.tensors)
        #: Inputs that are numbers to the function, and tensors only because a size of the traced model enters
        #: them.
        self.numbers = frozenset(
            name for name in self.names if not isinstance(call.arguments[name], torch.Tensor)
        )
        self.plain = {name: None if name in self.names else value for name, value in call.arguments.items()}
        #: Shapes and dtypes of the given inputs, and the ranks and dtypes of the results, as the traced call
        #: has them.
        self.traced = tuple(Spec(tensor) for tensor in call.tensors.values())
        self.results: tuple[Spec, ...] = ()
        self.form: Callable[[Sequence[torch.Tensor]], Any] | None = None

    def arguments(self, tensors: Sequence[torch.Tensor]) -> dict[str, Any]:
        """The function's arguments, ``tensors`` being the inputs that are given."""
        given = zip(self.names, tensors, strict=True)
        return {**self.plain, **{n: _number(t) if n in self.numbers else t for n, t in given}}


def _number(tensor: torch.Tensor) -> Any:
    """The value of a number that is a tensor in the traced model only: the function takes it as Python does."""
    if not is_tracing():
        return tensor.tolist()
    with untraced():
        return tensor.tolist()


def apply_function(operator: PlaceholderFunction, call: Call) -> Any:
    application = Application(operator, call)
    results = _Operator.apply(application, *call.tensors.values())  # type: ignore[no-untyped-call]
    assert application.form is not None
    return application.form(results if isinstance(results, tuple) else (results,))


class _Operator(torch.autograd.Function):
    generate_vmap_rule = True

    @staticmethod
    def forward(application: Application, *tensors: torch.Tensor) -> Any:
        result = application.operator.function(**application.arguments(tensors))
        flat = flatten(result, application.operator.qualified_name)
        application.form = form(result)
        application.results = tuple(Spec(item) for item in flat)
        return flat if len(flat) > 1 else flat[0]

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
        application, *tensors = inputs
        outputs = output if isinstance(output, tuple) else (output,)
        ctx.application = application
        ctx.mark_non_differentiable(*(o for o in outputs if not (o.is_floating_point() or o.is_complex())))
        ctx.save_for_backward(*tensors, *outputs)

    @staticmethod
    def backward(ctx: Any, *grads: torch.Tensor) -> Any:
        application: Application = ctx.application
        saved = ctx.saved_tensors
        count = len(application.names)
        inputs = SimpleNamespace(**application.arguments(saved[:count]))
        context = Context(inputs, tuple(saved[count:]), tuple(ctx.needs_input_grad[1:]))
        return (None, *application.operator.gradient(context, grads))

    @staticmethod
    def symbolic(g: Any, application: Application, *values: Any) -> Any:
        return emit_legacy(g, application, values)
