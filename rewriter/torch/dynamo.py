"""A placeholder node through ``torch.onnx.export(dynamo=True)``."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Any

import torch
from torch._guards import detect_fake_mode
from torch.fx.experimental.proxy_tensor import disable_proxy_modes_tracing
from torch.fx.experimental.symbolic_shapes import free_unbacked_symbols

from rewriter.torch.results import flatten, form

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rewriter.torch.arguments import Call
    from rewriter.torch.operator import PlaceholderFunction


def emit_dynamo(operator: PlaceholderFunction, call: Call) -> Any:
    """One node in the traced graph; ``function`` on the call's fake tensors gives its shapes and dtypes."""
    name, function = operator.qualified_name, operator.shape_function
    # What the function does must not be recorded: the sizes of its results would keep it alive in the graph.
    with disable_proxy_modes_tracing(), _no_symbol_left_pending(call):
        result = function(**call.arguments)
    flat = flatten(result, name)
    if _has_new_symbols(flat, call):
        # A size that depends on values exists only in the recording of what computes it.
        result = function(**call.arguments)
        flat = flatten(result, name)
    inputs, attributes = tuple(call.inputs.values()), dict[str, Any](call.attributes)
    dtypes, shapes = [item.dtype for item in flat], [tuple(item.shape) for item in flat]
    made: Sequence[torch.Tensor]
    if len(flat) == 1:
        dtype, shape = dtypes[0], shapes[0]
        made = [
            torch.onnx.ops.symbolic(
                name, inputs, attributes, dtype=dtype, shape=shape, version=operator.version
            )
        ]
    else:
        made = torch.onnx.ops.symbolic_multi_out(
            name, inputs, attributes, dtypes=dtypes, shapes=shapes, version=operator.version
        )
    # The stand-ins are made on the CPU, whatever device the model is on.
    pairs = zip(made, flat, strict=True)
    return form(result)(
        [item if item.device == real.device else item.to(real.device) for item, real in pairs]
    )


def _no_symbol_left_pending(call: Call) -> AbstractContextManager[Any]:
    """Tracing insists that sizes which depend on values are recorded; those of a trial run never are."""
    mode = detect_fake_mode(list(call.tensors.values()))
    return (
        nullcontext()
        if mode is None or mode.shape_env is None
        else mode.shape_env.ignore_fresh_unbacked_symbols()
    )


def _has_new_symbols(results: tuple[torch.Tensor, ...], call: Call) -> bool:
    known = {symbol for tensor in call.tensors.values() for symbol in free_unbacked_symbols(tensor)}
    return any(symbol not in known for result in results for symbol in free_unbacked_symbols(result))
