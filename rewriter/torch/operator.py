"""``@placeholder``: a Python function as an operator that trains, and that exports as one node."""

from __future__ import annotations

import functools
import re
from typing import TYPE_CHECKING, Any, overload

import torch

from rewriter.errors import UsageError
from rewriter.torch.arguments import Call, Parameters, split
from rewriter.torch.dynamo import emit_dynamo
from rewriter.torch.exporters import (
    Exporter,
    in_branch_of_an_export,
    is_captured,
    is_tracing,
    running_exporter,
)
from rewriter.torch.function import Context, apply_function

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from rewriter.gradients.result import GradientResult

#: The opset at which a decomposition is looked for where none is named.
DEFAULT_OPSET = 18
#: Namespaces that mean something of their own to ONNX or to the exporters, which translate or refuse their
#: nodes.
_RESERVED = ("", "ai.onnx", "ai.onnx.ml", "onnx", "aten", "prim", "quantized", "onnx_symbolic")


def placeholder(name: str, *, version: int = 1) -> Callable[[Callable[..., Any]], PlaceholderFunction]:
    """Make the decorated function an operator that exports as one node ``name`` (``"domain::Operator"``).

    The function takes tensors and plain parameters (int, float, bool, str, lists of them, None) and returns a
    tensor or a tuple of tensors, in ordinary differentiable PyTorch and without changing its arguments.
    Called in eager mode it is that function: same bits, same gradient.  During ``torch.onnx.export`` it is
    one node whose inputs are the tensors in the function's order (None where omitted: the empty name) and
    whose attributes are the other parameters (bools as ints; None and empty lists are left out).

    ``version`` is the version of the domain in files made by ``dynamo=True``; the exporter behind
    ``dynamo=False`` takes it from ``torch.onnx.export(custom_opsets={domain: version})`` and writes 1 by
    itself.

    Raises UsageError for a name without a domain, or in a domain that the exporters keep for themselves.
    """

    def make(function: Callable[..., Any]) -> PlaceholderFunction:
        return PlaceholderFunction(function, name, version)

    return make


class PlaceholderFunction:
    """An operator made by :func:`placeholder`; call it like the function that it was made from."""

    def __init__(self, function: Callable[..., Any], name: str, version: int = 1) -> None:
        domain, _, operator = name.rpartition("::")
        if domain in _RESERVED or not re.fullmatch(r"[A-Za-z][\w.-]*", domain) or not operator.isidentifier():
            raise UsageError(
                f"'{name}' does not name an operator in a domain of one's own",
                where=getattr(function, "__qualname__", None),
                remedy="write 'domain::Operator', as in 'com.example::Roll'",
            )
        self.domain = domain
        self.operator = operator
        self.version = version
        self.function = function
        self.parameters = Parameters(function, name)
        self._backward: Callable[..., Any] | None = None
        #: Why its backward is not the derivative, where that is so on purpose.
        self.surrogate = ""
        self._fake: Callable[..., Any] | None = None
        #: The same call, which TorchDynamo takes as it stands instead of looking inside.
        self._opaque = torch.compiler.allow_in_graph(  # type: ignore[no-untyped-call]
            lambda args, kwargs: self(*args, **kwargs)
        )
        functools.update_wrapper(self, function)

    @property
    def qualified_name(self) -> str:
        return f"{self.domain}::{self.operator}"

    @overload
    def backward(self, function: Callable[..., Any]) -> Callable[..., Any]: ...

    @overload
    def backward(self, *, surrogate: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]: ...

    def backward(
        self, function: Callable[..., Any] | None = None, *, surrogate: str = ""
    ) -> Callable[..., Any]:
        """Decorator: ``function(ctx, *grads)`` is the operator's gradient, in place of autograd's.

        ``ctx`` is a :class:`~rewriter.torch.function.Context`: ``ctx.inputs.x`` are the arguments by name,
        ``ctx.outputs`` the results, ``ctx.needs_input_grad`` whether each tensor argument needs a gradient.
        Returns one gradient, or None, for each tensor argument given, in the function's order.  Written in
        differentiable PyTorch, it serves second derivatives as well.

        ``@op.backward(surrogate="straight-through")`` says that it is another gradient than the derivative, and
        on purpose: checks of gradients then leave its values alone.
        """

        def take(function: Callable[..., Any]) -> Callable[..., Any]:
            self._backward = function
            self.surrogate = surrogate
            return function

        return take if function is None else take(function)

    def check(
        self,
        *args: Any,
        passes: str | Iterable[Any] = "auto",
        opset: int = DEFAULT_OPSET,
        seed: int = 0,
        **kwargs: Any,
    ) -> GradientResult:
        """Check the operator's gradient on example arguments: :func:`rewriter.torch.check_gradients`."""
        from rewriter.torch.checking import check_gradients

        return check_gradients(self, *args, passes=passes, opset=opset, seed=seed, **kwargs)

    @property
    def has_backward(self) -> bool:
        """Whether it has a gradient of its own, in place of autograd's."""
        return self._backward is not None

    def observed(self, observe: Callable[[Callable[..., Any]], Callable[..., Any]]) -> PlaceholderFunction:
        """The same operator, whose own backward, if it has one, is what ``observe`` makes of it."""
        other = PlaceholderFunction(self.function, self.qualified_name, self.version)
        other._fake, other.surrogate = self._fake, self.surrogate
        other._backward = None if self._backward is None else observe(self._backward)
        return other

    def register_fake(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """Decorator: ``function(*args)`` gives results of the right shapes and dtypes without computing them.

        Only needed for an operator whose Python cannot run on tensors without
        values (``.item()``, ``.numpy()``, loops over results).
        """
        self._fake = function
        return function

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if in_branch_of_an_export():
            return self._opaque(args, kwargs)
        arguments = self.parameters.bind(args, kwargs)
        exporter = running_exporter(arguments.values())
        if exporter is None and (self._backward is None or is_tracing() or is_captured(arguments.values())):
            return self.function(**arguments)
        if exporter is None:
            inputs = {name: value for name, value in arguments.items() if isinstance(value, torch.Tensor)}
            return apply_function(self, Call(arguments, dict(inputs), {}))
        call = split(self.parameters, arguments)
        if exporter is Exporter.LEGACY:
            return apply_function(self, call)
        return emit_dynamo(self, call)

    @property
    def shape_function(self) -> Callable[..., Any]:
        """What gives results of the right shapes and dtypes on tensors without values."""
        return self._fake or self.function

    def gradient(self, ctx: Context, grads: tuple[torch.Tensor, ...]) -> tuple[torch.Tensor | None, ...]:
        """The operator's own gradient; UsageError unless it returns one for each tensor argument."""
        if self._backward is None:
            raise UsageError(
                "a model cannot be trained while it is being exported",
                where=self.qualified_name,
                remedy="export first",
            )
        result = self._backward(ctx, *grads)
        gradients = tuple(result) if isinstance(result, (tuple, list)) else (result,)
        if len(gradients) != len(ctx.needs_input_grad):
            raise UsageError(
                f"its backward returned {len(gradients)} gradients for "
                f"{len(ctx.needs_input_grad)} tensor arguments",
                where=self.qualified_name,
                remedy="return one gradient or None for each tensor argument given, in the function's order",
            )
        return gradients

    def __reduce__(self) -> str:
        # Like a function it is found by its name: it is its own copy, and pickles where it stands in a module.
        return str(getattr(self, "__qualname__", ""))

    def __repr__(self) -> str:
        return f"<placeholder {self.qualified_name}{self.parameters.signature}>"
