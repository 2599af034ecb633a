"""The derived decomposition: what a pass's reference comes down to at the types of one node."""

from __future__ import annotations

import functools
from collections import OrderedDict
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from onnx.inliner import inline_local_functions

from rewriter.derive import stops
from rewriter.derive.translate import OPSET, Translation, translate
from rewriter.errors import DerivationError
from rewriter.lower.writer import Writer
from rewriter.placeholder.contract import Decomposition
from rewriter.placeholder.value import Value
from rewriter.types import TensorType

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from onnx import ModelProto

    from rewriter.placeholder.builder import Builder
    from rewriter.placeholder.contract import Placeholder
    from rewriter.types import Dim

#: What a derived decomposition is called in reports.
NAME = "derived"

#: Translations that are remembered; equal placeholders are traced once.
_REMEMBERED = 256


def derived(source: str, stop: tuple[str, ...] = ()) -> Decomposition:
    """The decomposition that a pass's reference gives; ``source`` says for reports whose meaning that is.

    ``stop`` are operators of ``aten`` that stay placeholders (:mod:`rewriter.derive.stops`).
    """
    return Decomposition(
        NAME, functools.partial(_build, stop=stop), portable=False, reason=f"derived from {source}"
    )


def _build(
    placeholder: Placeholder, g: Builder, *positional: Any, stop: tuple[str, ...], **named: Any
) -> list[Value | None]:
    arguments = _by_name(placeholder, positional, named)
    tensors = _tensors(arguments)
    try:
        made = _translated(placeholder, arguments, tensors, stop)
    except DerivationError:
        known = [value for value in tensors if value.constant is not None]
        if not known:
            raise
        # Values that the model fixes may decide what is computed: an index, a number of repetitions.
        tensors = [value for value in tensors if value.constant is None]
        made = _translated(placeholder, arguments, tensors, stop)
    g.conditions += made.conditions
    results = iter(_recorded(g, made, tensors))
    return [next(results) if present else None for present in made.present]


def _by_name(placeholder: Placeholder, positional: Sequence[Any], named: Mapping[str, Any]) -> dict[str, Any]:
    names = list(placeholder.signature.names)
    variadic = next((p.name for p in placeholder.signature.parameters if p.variadic), None)
    if variadic is None:
        return dict(named)
    at = names.index(variadic)
    return {**dict(zip(names[:at], positional, strict=False)), variadic: tuple(positional[at:]), **named}


def _tensors(arguments: Mapping[str, Any]) -> list[Value]:
    found: dict[str, Value] = {}
    for argument in arguments.values():
        for item in argument if isinstance(argument, tuple) else (argument,):
            if isinstance(item, Value):
                found.setdefault(item.name, item)
    return list(found.values())


# --- the trace ------------------------------------------------------------------------------------------------

_memory: OrderedDict[Any, Translation] = OrderedDict()


def _translated(
    placeholder: Placeholder,
    arguments: Mapping[str, Any],
    tensors: Sequence[Value],
    stop: tuple[str, ...],
) -> Translation:
    types = _anonymous([TensorType(value.dtype, value.shape) for value in tensors])
    call = _Call(placeholder, arguments, tuple(value.name for value in tensors))
    key = (call.identity(), tuple((t.dtype, t.shape) for t in types), stop)
    known = _memory.get(key)
    if known is None:
        names = [call.parameter_of(value) for value in tensors]
        known = _memory[key] = translate(call, types, names, stops.table(stop))
        while len(_memory) > _REMEMBERED:
            _memory.popitem(last=False)
    return known


def _anonymous(types: Sequence[TensorType]) -> list[TensorType]:
    """The types with sizes named by their first place, so that equal patterns are traced once."""
    names: dict[str, str] = {}
    made = []
    for known in types:
        shape = tuple(
            names.setdefault(size, f"n{len(names)}") if isinstance(size, str) else size
            for size in known.shape or ()
        )
        made.append(replace(known, shape=shape))
    return made


@dataclass(frozen=True)
class _Call:
    """The reference with its parameters fixed: a function of the tensors called ``inputs``."""

    placeholder: Placeholder
    arguments: Mapping[str, Any]
    inputs: tuple[str, ...]

    @property
    def source(self) -> Any:
        """The function whose lines a message may name; None where it is not one that a user wrote."""
        reference = self.placeholder.reference
        return None if hasattr(self.placeholder, "overload") else getattr(reference, "__func__", reference)

    def __call__(self, *tensors: Any) -> Any:
        from rewriter.execution.reference import call_reference
        from rewriter.execution.values import to_torch

        given = dict(zip(self.inputs, tensors, strict=True))

        def argument(item: Any) -> Any:
            if isinstance(item, Value):
                return given[item.name] if item.name in given else to_torch(np.asarray(item.constant))
            if isinstance(item, tuple):
                return tuple(argument(part) for part in item)
            return to_torch(item) if isinstance(item, np.ndarray) else item

        return call_reference(
            self.placeholder, {name: argument(item) for name, item in self.arguments.items()}
        )

    def parameter_of(self, value: Value) -> str:
        for name, argument in self.arguments.items():
            items = argument if isinstance(argument, tuple) else (argument,)
            if any(isinstance(item, Value) and item.name == value.name for item in items):
                return name
        return value.name

    def identity(self) -> Any:
        """What the function computes: the pass, the parameters, and which argument is which tensor."""

        def of(item: Any) -> Any:
            if isinstance(item, Value):
                if item.name in self.inputs:
                    return ("input", self.inputs.index(item.name))
                item = np.asarray(item.constant)
            if isinstance(item, np.ndarray):
                return (str(item.dtype), item.shape, item.tobytes())
            if isinstance(item, tuple):
                return tuple(of(part) for part in item)
            return (type(item), item if item == item else "nan")

        return self.placeholder, tuple((name, of(item)) for name, item in self.arguments.items())


# --- the nodes ------------------------------------------------------------------------------------------------


def _types(model: ModelProto, tensors: Sequence[Value]) -> dict[str, TensorType]:
    """The types of the model's values, with sizes by the names that they have where ``tensors`` come from."""
    sizes: dict[str, Dim] = {}
    for item, value in zip(model.graph.input, tensors, strict=True):
        traced = TensorType.from_proto(item.type)
        pairs = zip((traced and traced.shape) or (), value.shape, strict=False)
        sizes |= {name: size for name, size in pairs if isinstance(name, str)}
    found = {}
    for item in (*model.graph.value_info, *model.graph.output):
        known = TensorType.from_proto(item.type)
        if known is not None and known.shape is not None:
            found[item.name] = known.with_shape(
                sizes.get(size) if isinstance(size, str) else size for size in known.shape
            )
    return found


def _recorded(g: Builder, made: Translation, tensors: Sequence[Value]) -> list[Value | None]:
    """The results of the translated model, written in ``g`` in the forms of its opset."""
    model = inline_local_functions(made.model) if made.model.functions else made.model
    types = _types(model, tensors)
    names: dict[str, Value | None] = {
        item.name: value for item, value in zip(model.graph.input, tensors, strict=True)
    }
    with Writer.into(g) as writer:
        names |= {tensor.name: writer.const(tensor) for tensor in model.graph.initializer}
        for node in model.graph.node:
            if node.domain == stops.DOMAIN:
                inputs = [names[name] if name else None for name in node.input]
                results = stops.record(types, writer, node, inputs)
                names |= dict(zip(node.output, results, strict=True))
            else:
                writer.replay([node], names, OPSET)
    return [names[item.name] for item in model.graph.output]
