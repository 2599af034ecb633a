"""A replaced placeholder as a model of its own: what it takes, what it gives, and both ways to compute that."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from onnx import TensorProto

from rewriter.errors import CannotInterpretError
from rewriter.execution.values import element_type
from rewriter.gradients.forward import Unlike, agreement
from rewriter.gradients.graphs import interpreted
from rewriter.gradients.judge import Comparison
from rewriter.gradients.sides import Point, Raised, results
from rewriter.gradients.slack import slacks_for
from rewriter.gradients.trained import no_tensor, reference_side, wide
from rewriter.inputs.of_region import drawn
from rewriter.placeholder.binding import Ref
from rewriter.types import TensorType, dtype_name
from rewriter.verify.regions import Index, identity, outputs_of, standalone, tensors_of

if TYPE_CHECKING:
    from collections.abc import Hashable, Mapping, Sequence

    import torch
    from onnx import ModelProto

    from rewriter.decompose import Region
    from rewriter.gradients.sides import Side
    from rewriter.gradients.slack import Slack
    from rewriter.storage import ModelFile
    from rewriter.verify.options import VerifyOptions

#: Element types of which a gradient is taken; narrower ones hold too few numbers to train in.
_FLOATS = frozenset({TensorProto.FLOAT, TensorProto.DOUBLE, TensorProto.FLOAT16, TensorProto.BFLOAT16})


@dataclass(frozen=True)
class Part:
    """A region's nodes as they stand; ``types`` are of what they take, ``constants`` the values that are known."""

    region: Region
    types: Mapping[str, TensorType]
    constants: Mapping[str, Any]
    model: ModelProto
    file: ModelFile

    @property
    def key(self) -> Hashable:
        """What makes two regions one to check: the values of their weights do not matter."""
        region = self.region
        return identity(region, self.types, self.model), region.where.operator, str(region.node.attribute)

    @property
    def slacks(self) -> tuple[Slack, ...]:
        return slacks_for(dtype_name(kind.dtype) for kind in self.types.values())

    @property
    def computed(self) -> dict[str, TensorType]:
        """What must be drawn."""
        return {name: kind for name, kind in self.types.items() if name not in self.constants}

    def point(self, feeds: Mapping[str, Any], constants: Mapping[str, Any] | None = None) -> Point:
        """Values for everything that it takes, in float64; all floating-point ones are differentiated by."""
        values = {**feeds, **(self.constants if constants is None else constants)}
        return Point(
            {name: wide(values[name]) for name in self.types},
            tuple(name for name, kind in self.types.items() if kind.dtype in _FLOATS),
        )

    def shipped(self) -> Side:
        """The nodes, interpreted."""
        # A region may be the identity; its copy is then called otherwise.
        outputs = {output.name.removesuffix(":out"): output.name for output in self.model.graph.output}
        names = [outputs.get(name, name) if name else "" for name in outputs_of(self.region)]
        return interpreted(self.model, names, self.file)

    def reference(self) -> Side:
        """The pass's reference."""
        return reference_side(self.region.placeholder, self.region.bound.arguments, outputs_of(self.region))

    def comparison(
        self,
        trained: Side,
        shipped: Side,
        generator: torch.Generator,
        *,
        slacks: Sequence[Slack] | None = None,
    ) -> Comparison:
        """The one held against the other, with ``slacks``, by default those of its types."""
        return Comparison(
            trained,
            shipped,
            generator,
            slacks=self.slacks if slacks is None else slacks,
            labels=self.labels(),
            names=self.region.placeholder.outputs,
        )

    def labels(self) -> dict[str, str]:
        """The pass's own names of its tensor arguments, by value name."""
        found: dict[str, list[str]] = {}
        for parameter, argument in self.region.bound.arguments.items():
            if isinstance(argument, Ref):
                found.setdefault(argument.name, []).append(parameter)
            elif isinstance(argument, tuple):
                for number, item in enumerate(argument):
                    if isinstance(item, Ref):
                        found.setdefault(item.name, []).append(f"{parameter}[{number}]")
        return {name: ", ".join(parameters) for name, parameters in found.items()}


def part_of(region: Region, index: Index, file: ModelFile, options: VerifyOptions) -> Part | str:
    """The region's part of the scope that ``index`` is of; why there is none, where types are unknown.

    Constants (weights) are among what it takes where its nodes read them as they are.
    """
    types = tensors_of(region)
    unknown = [name for name, kind in types.items() if kind is None or kind.shape is None]
    if unknown:
        return f"the type of its input '{unknown[0]}' is unknown"
    known = {name: kind for name, kind in types.items() if kind is not None}
    held_dtypes = {
        ref.name: element_type(np.asarray(ref.constant))
        for ref in region.bound.refs()
        if ref.constant is not None
    }
    for name, dtype in ({name: kind.dtype for name, kind in known.items()} | held_dtypes).items():
        problem = no_tensor(dtype)
        if problem:
            return f"its input '{name}' cannot be given: {problem}"
    weights = {
        ref.name: ref.constant
        for ref in region.bound.refs()
        if ref.constant is not None and ref.name and element_type(np.asarray(ref.constant)) in _FLOATS
    }
    held: dict[str, Any] = weights
    while True:
        kinds = known | {
            name: TensorType(element_type(np.asarray(value)), np.shape(value)) for name, value in held.items()
        }
        piece = index.slice(kinds, outputs_of(region))
        if piece.loose:
            return f"it reads '{piece.loose[0]}', whose type is unknown"
        part = Part(region, kinds, held, standalone(index, kinds, outputs_of(region), piece), file)
        if not held or _free(part, options):
            return part
        held = {}


def _free(part: Part, options: VerifyOptions) -> bool:
    """Whether the constants may vary: no decomposition computed something of their values."""
    moved = {
        name: np.asarray(value).astype(np.float64) * 1.25 + 0.125 for name, value in part.constants.items()
    }
    try:
        trained, shipped = part.reference(), part.shipped()
    except CannotInterpretError:
        return False
    for made in drawn(part.region, part.computed, options, 0):
        point = part.point(made.feeds, moved)
        try:
            agreement(results(shipped, point), results(trained, point), part.slacks)
        except Unlike:
            return False
        except Raised as error:
            if isinstance(error.error, CannotInterpretError):
                return False
            continue
        return True
    return False
