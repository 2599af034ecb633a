"""What every source of expected values has in common."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from rewriter.errors import VerificationError
from rewriter.types import TensorType

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from onnx import ModelProto, TypeProto

    from rewriter.execution.numbers import Array
    from rewriter.execution.values import Data
    from rewriter.inputs.draw import Sample


class OracleRefused(VerificationError):  # noqa: N818  (an outcome of a sample, handled by whoever drew it)
    """PyTorch does not take these inputs: a size outside a guard, an index out of range."""

    code = "oracle-refused"


@dataclass(frozen=True)
class Recorded:
    """Inputs by name with the outputs that belong to them."""

    feeds: Mapping[str, Data]
    outputs: Mapping[str, Data]
    #: For people: ``"test_data_set_0"``.
    label: str


class Oracle(Protocol):
    """Where expected outputs come from."""

    #: ``"torch.export archive"``, ``"PyTorch module"`` or ``"recorded values"``.
    kind: str
    #: What the user named, without folders.
    name: str
    #: What had to be assumed of how the graph's inputs fit, in a clause; "" where nothing was.
    assumed: str

    @property
    def recorded(self) -> Sequence[Recorded]:
        """All that it knows; empty where it computes."""

    def __call__(self, sample: Sample) -> Mapping[str, Data]:
        """The graph's outputs by name, an absent optional as None; OracleRefused where PyTorch takes no such inputs."""

    def inner(self, sample: Sample) -> Inner | None:
        """The values between inputs and outputs; None where it has none."""


@dataclass(frozen=True)
class Step:
    """One operator of a PyTorch program: its name there, and what tells it from others in another capture."""

    name: str
    #: ``"torch.ops.aten.linear.default"``.
    target: str
    #: Path of the submodule that ran it, ``"layers.0.attn"``.
    module: str = ""
    #: Line numbers and functions of the recorded stack, without folders.
    line: str = ""


class Inner(Protocol):
    """The inner values of one run of a PyTorch program."""

    @property
    def steps(self) -> Sequence[Step]:
        """Its operators, in order."""

    def values(self, names: Sequence[str]) -> Mapping[str, Array]:
        """The results of those of the named steps that give a tensor, computed anew for every question."""


@dataclass(frozen=True)
class Interface:
    """What a graph takes and gives, in order."""

    #: Inputs that must be given: None where a type is no tensor's.
    inputs: Mapping[str, TensorType | None]
    outputs: Mapping[str, TensorType | None]
    #: Inputs with a default.
    optional: Mapping[str, TensorType | None]
    #: The declared type of each, as it stands in the file.
    protos: Mapping[str, TypeProto]
    #: Inputs in the order of the file, those with a default included.
    order: Sequence[str]

    @classmethod
    def of(cls, model: ModelProto) -> Interface:
        graph = model.graph
        defaults = {t.name for t in graph.initializer} | {t.values.name for t in graph.sparse_initializer}
        types = {value.name: TensorType.from_proto(value.type) for value in graph.input}
        return cls(
            {name: kind for name, kind in types.items() if name not in defaults},
            {value.name: TensorType.from_proto(value.type) for value in graph.output},
            {name: kind for name, kind in types.items() if name in defaults},
            {value.name: value.type for value in (*graph.input, *graph.output)},
            list(types),
        )


def names_text(names: Sequence[str]) -> str:
    return ", ".join(f"'{name}'" for name in names) or "none"
