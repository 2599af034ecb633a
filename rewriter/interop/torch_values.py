# ruff: noqa: N802  (the names are torch's)
"""The values and nodes that a `torch.onnx` symbolic is handed.

They answer as torch's own do, so that `torch.onnx.symbolic_helper` works on them unchanged and nothing in torch has
to be patched: it asks ``isinstance(x, torch._C.Value)``, which Python answers by ``x.__class__``.  Whatever is not
listed here is refused, never guessed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from onnx import AttributeProto, numpy_helper

from rewriter.errors import DecompositionFault
from rewriter.interop import attributes as attrs
from rewriter.interop.torch_types import TorchType
from rewriter.placeholder.value import Value
from rewriter.types import TensorType

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rewriter.interop.torch_graph import TorchGraph


class PythonUse(DecompositionFault, TypeError):  # noqa: N818  (a refusal, and the TypeError that torch would raise)
    """A constant argument, handed over as a value, was used as a Python number or list."""


class TorchNode:
    """Answers as the ``torch._C.Node`` that made a value."""

    __slots__ = ("_attributes", "_graph", "_inputs", "_kind", "results")

    def __init__(
        self, graph: TorchGraph, kind: str, attributes: Sequence[AttributeProto], inputs: Sequence[Any]
    ) -> None:
        self._graph = graph
        self._kind = kind
        self._attributes = {attribute.name: attribute for attribute in attributes}
        self._inputs = inputs
        self.results: tuple[TorchValue, ...] = ()

    @property  # type: ignore[misc]
    def __class__(self) -> Any:
        from torch import _C

        return _C.Node

    def kind(self) -> str:
        return self._kind

    def mustBeNone(self) -> bool:
        return self._kind == "prim::Constant"

    def kindOf(self, name: str) -> str:
        kind = self.get(name).type
        return next(suffix for suffix, known in attrs.SUFFIXES.items() if known == kind)

    def hasAttribute(self, name: str) -> bool:
        return name in self._attributes

    def attributeNames(self) -> list[str]:
        return list(self._attributes)

    def i(self, name: str) -> int:
        return int(self.get(name).i)

    def f(self, name: str) -> float:
        return float(self.get(name).f)

    def s(self, name: str) -> str:
        return self.get(name).s.decode("utf-8", "surrogateescape")

    def t(self, name: str) -> Any:
        """The attribute as a ``torch.Tensor``."""
        from rewriter.execution.values import to_torch

        return to_torch(numpy_helper.to_array(self.get(name).t))

    def inputs(self) -> list[Any]:
        return list(self._inputs)

    def outputs(self) -> list[TorchValue]:
        return list(self.results)

    def output(self) -> TorchValue:
        return self.results[0]

    def sourceRange(self) -> str:
        return ""

    def get(self, name: str) -> AttributeProto:
        if name not in self._attributes:
            raise self._graph.fault(f"the node '{self._kind}' has no attribute '{name}'")
        return self._attributes[name]

    def __str__(self) -> str:
        return self._kind

    def __getattr__(self, name: str) -> Any:
        if name == "is":
            return lambda key: list(self.get(key).ints)
        if name == "fs":
            return lambda key: list(self.get(key).floats)
        if name.startswith("__"):
            raise AttributeError(name)
        raise self._graph.refuse(f"node().{name}")


class TorchValue:
    """Answers as a ``torch._C.Value``.

    One of: a value of the builder; a number, string or list among the operator's arguments (``literal``), which becomes
    a constant where an operator takes it; an optional input that is not given (``omitted``).
    """

    __slots__ = ("_node", "graph", "literal", "omitted", "result")

    def __init__(
        self,
        graph: TorchGraph,
        result: Value | None,
        node: TorchNode,
        literal: Any = None,
        *,
        omitted: bool = False,
    ) -> None:
        self.graph = graph
        self.result = result
        self.literal = literal
        self.omitted = omitted
        self._node = node

    @property  # type: ignore[misc]
    def __class__(self) -> Any:
        from torch import _C

        return _C.Value

    def node(self) -> TorchNode:
        return self._node

    def type(self) -> TorchType:
        return TorchType(self._type(), lambda what: self.graph.refuse(what))

    def debugName(self) -> str:
        return "" if self.result is None else self.result.name

    def isCompleteTensor(self) -> bool:
        known = self._type()
        return known is not None and known.is_static

    def setType(self, given: Any) -> TorchValue:
        """A claim about the type: held against what is known, and believed where nothing is."""
        if self.omitted:
            return self
        if type(given) is not TorchType:
            raise self.graph.refuse(
                f"setType({given})", "give it x.type(), also .with_sizes() or .with_dtype()"
            )
        claimed, known = given.known, self._type()
        if claimed is None or self.result is None:
            return self
        if known is not None and not _compatible(claimed, known):
            raise self.graph.fault(f"setType() says {claimed}, the value is {known}")
        if known is None or (known.shape is None and claimed.shape is not None):
            self.result = self.result.builder.retyped(
                Value(
                    self.result.builder, self.result.name, claimed, self.result.constant, self.result.sizes
                ),
                claimed.shape,
            )
        return self

    def _type(self) -> TensorType | None:
        if self.result is not None:
            return self.result.builder.values[self.result.name].type
        if self.literal is None or isinstance(self.literal, str):
            return None
        tensor = self._node.get("value").t
        return TensorType(tensor.data_type, tuple(tensor.dims))

    # --- what a tensor cannot do before the model runs --------------------------------------------------------

    def python_use(self, what: str) -> DecompositionFault:
        if self.literal is not None:
            return PythonUse(
                f"{what} takes a Python value, and this argument is given as a constant value",
                where=self.graph.where,
                remedy='declare constants="python", or unwrap it with symbolic_helper.parse_args or _get_const',
            )
        return self.graph.fault(
            f"{what} takes a Python value, and a tensor is given",
            "unwrap a constant with symbolic_helper._get_const",
        )

    def __bool__(self) -> bool:
        if self.literal is not None:
            raise self.python_use("a condition")
        return not self.omitted

    def __eq__(self, other: object) -> bool:
        if is_value(other) or other is None:
            return self is other
        raise self.python_use("a comparison")

    def __ne__(self, other: object) -> bool:
        return not self == other

    __hash__ = object.__hash__

    def __str__(self) -> str:
        return "None" if self.omitted else self.debugName() or repr(self.literal)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        raise self.graph.refuse(f"Value.{name}")


def _python_method(name: str, what: str) -> Any:
    def method(self: TorchValue, *_: Any) -> Any:
        raise self.python_use(what)

    method.__name__ = name
    return method


for _name in ("int", "float", "index", "iter", "len", "getitem", "contains"):
    setattr(TorchValue, f"__{_name}__", _python_method(f"__{_name}__", f"{_name}()"))
for _name in ("lt", "le", "gt", "ge"):
    setattr(TorchValue, f"__{_name}__", _python_method(f"__{_name}__", "a comparison"))
for _name in ("add", "sub", "mul", "truediv", "floordiv", "mod", "pow"):
    for _side in ("", "r"):
        setattr(TorchValue, f"__{_side}{_name}__", _python_method(f"__{_side}{_name}__", "arithmetic"))
for _name in ("neg", "abs", "round", "trunc"):
    setattr(TorchValue, f"__{_name}__", _python_method(f"__{_name}__", "arithmetic"))


def is_value(item: Any) -> bool:
    # By type: `isinstance` would say what `__class__` pretends.
    return type(item) is TorchValue


def _compatible(a: TensorType, b: TensorType) -> bool:
    if a.dtype != b.dtype:
        return False
    if a.shape is None or b.shape is None:
        return True
    return len(a.shape) == len(b.shape) and all(
        not (isinstance(x, int) and isinstance(y, int)) or x == y
        for x, y in zip(a.shape, b.shape, strict=True)
    )
