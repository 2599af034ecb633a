"""What a kernel knows of the node that it computes."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from rewriter.errors import CannotInterpretError, InterpreterRefusedError
from rewriter.interpret.types import torch_dtype

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    import torch
    from torch import Tensor

    from rewriter.errors import Where
    from rewriter.interpret.plan import Declared


@dataclass(frozen=True)
class Body:
    """A graph in an attribute, with the values around it."""

    run: Callable[[Sequence[Any]], list[Any]]
    #: What it says of its outputs; see :data:`rewriter.interpret.plan.Declared`.
    declared: Sequence[Declared]

    def __call__(self, inputs: Sequence[Any]) -> list[Any]:
        """Its outputs for these inputs."""
        return self.run(inputs)


@dataclass(frozen=True)
class Call:
    """One node: its attributes with the defaults of its schema, and the version it is read by."""

    op_type: str
    #: Version of the operator's domain in the node's scope.
    opset: int
    #: Strings as ``str``, tensors as :class:`torch.Tensor`; bodies are in ``bodies``.
    attributes: Mapping[str, Any]
    #: Whether the i-th result is named.
    wanted: tuple[bool, ...]
    where: Where
    #: The type that stands for every floating-point type; None keeps each.
    floating: torch.dtype | None = None
    #: By attribute name.
    bodies: Mapping[str, Body] = field(default_factory=dict)

    def __getitem__(self, name: str) -> Any:
        """An attribute that is present or has a default."""
        try:
            return self.attributes[name]
        except KeyError:
            raise self.refused(f"the attribute '{name}' is missing") from None

    def get(self, name: str, default: Any = None) -> Any:
        return self.attributes.get(name, default)

    def wants(self, index: int) -> bool:
        """Whether the ``index``-th result is read."""
        return index < len(self.wanted) and self.wanted[index]

    def dtype(self, element_type: int) -> torch.dtype:
        """The torch type that stands for a ``TensorProto.DataType``."""
        found = torch_dtype(element_type)
        if found is None:
            from rewriter.types import dtype_name

            raise self.unsupported(f"PyTorch has no tensors of {dtype_name(element_type)}")
        if self.floating is not None and found.is_floating_point:
            return self.floating
        return found

    def ints(self, name: str, given: Tensor | None = None) -> list[int] | None:
        """A list that is an attribute in older versions and an input in newer ones; None where it is neither."""
        if given is not None:
            return [int(item) for item in given.reshape(-1).tolist()]
        value = self.attributes.get(name)
        return None if value is None else [int(item) for item in value]

    def unsupported(self, what: str) -> CannotInterpretError:
        return CannotInterpretError(what, where=self.where)

    def refused(self, what: str) -> InterpreterRefusedError:
        return InterpreterRefusedError(what, where=self.where)
