"""Values that leave a region nothing to do: constant, saturated or empty ones, where the inputs could be otherwise.

A reference and a decomposition agree easily on zeros.  What a region takes is looked at in every sample, and where no
sample says more, there is a warning with the inputs that would.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from onnx import TensorProto

from rewriter.domains import normal_domain
from rewriter.execution.cut import outer_names
from rewriter.execution.numbers import is_float, to_float64
from rewriter.placeholder.binding import Ref

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from onnx import ModelProto, NodeProto

    from rewriter.decompose import Region
    from rewriter.execution.numbers import Array
    from rewriter.execution.values import Data
    from rewriter.inputs.draw import Inputs

#: Operators whose result does not depend on the numbers that they take, only on how many there are.
_BLIND = frozenset(
    {"Shape", "Size", "ConstantOfShape", "EyeLike", "RandomNormalLike", "RandomUniformLike", "SequenceLength"}
)
#: Operators with a limit that all values may come to lie at.
_LIMITED = frozenset(
    {
        "Clip",
        "Max",
        "Min",
        "Relu",
        "Softmax",
        "Sigmoid",
        "HardSigmoid",
        "Tanh",
        "Erf",
        "Softsign",
        "HardSwish",
    }
)
#: Operators that hand on numbers as they are.
_MOVES = frozenset(
    {
        "Identity",
        "Reshape",
        "Transpose",
        "Squeeze",
        "Unsqueeze",
        "Flatten",
        "Slice",
        "Gather",
        "Expand",
        "Tile",
    }
)
#: So many numbers that two values among them are no accident.
_FEW = 8
#: Flags that a message lists.
_SHOWN = 3


class Degenerate:
    """Looks at the main graph of one model."""

    def __init__(self, model: ModelProto, inputs: Inputs) -> None:
        self._inputs = inputs
        self._producers = {name: node for node in model.graph.node for name in node.output if name}
        self._behind: dict[str, tuple[str, ...]] = {}

    def remarks(self, region: Region, values: Mapping[str, Data]) -> list[str]:
        """Why agreement of the region on one sample says little, in clauses; ``values`` are those of the main graph."""
        found: list[str] = []
        for name, argument in region.bound.arguments.items():
            for ref in argument if isinstance(argument, tuple) else (argument,):
                if not isinstance(ref, Ref) or ref.constant is not None:
                    continue
                value = values.get(ref.name)
                why = self._state(ref.name, value) if isinstance(value, np.ndarray) else ""
                if why and self.behind([ref.name]):
                    found.append(f"'{name}' ('{ref.name}') is {why}")
        return found

    def behind(self, names: Iterable[str]) -> list[str]:
        """The inputs of the graph whose numbers reach one of ``names``."""
        found: dict[str, None] = {}
        for name in names:
            if name not in self._behind:
                self._behind[name] = tuple(self._search(name))
            found |= dict.fromkeys(self._behind[name])
        return list(found)

    def remedy(self, names: Iterable[str], *, empty: bool = False) -> str:
        """What to give so that ``names`` become others."""
        inputs = self._inputs
        flags = [
            f"--input-range {name}=LOW:HIGH"
            for name in self.behind(names)
            if name in inputs.types and inputs.types[name].dtype != TensorProto.STRING
        ]
        if inputs.given is not None:
            return "give other inputs (--inputs)"
        if empty:
            flags += [f"--dim {name}=…" for name in inputs.sizes.names]
        shown = [*flags[:_SHOWN], *(["…"] if len(flags) > _SHOWN else []), "--inputs FILE.npz"]
        return f"give other inputs ({', '.join(shown)})"

    def _search(self, name: str) -> list[str]:
        found: dict[str, None] = {}
        waiting, seen = [name], set()
        while waiting:
            value = waiting.pop()
            if value in seen or not value:
                continue
            seen.add(value)
            node = self._producers.get(value)
            if node is None:
                if value in self._inputs.types:
                    found[value] = None
            elif node.op_type not in _BLIND or normal_domain(node.domain):
                waiting += [*node.input, *outer_names(node)]
        return list(found)

    def _state(self, name: str, value: Array) -> str:
        """What is degenerate about the value; "" where nothing is."""
        if value.size == 0:
            return "empty"
        flat = value.reshape(-1)
        if _is_constant(flat):
            return "" if flat.size == 1 else f"{flat[0]} throughout"
        if not is_float(value.dtype) or value.dtype.kind == "c":
            return ""
        # Only what begins so, or comes from such an operator, is looked at as a whole.
        unbounded = not np.isfinite(to_float64(flat[:64])).any()
        source = self._source(name) if flat.size >= _FEW else None
        if source is None and not unbounded:
            return ""
        numbers = to_float64(flat)
        finite = numbers[np.isfinite(numbers)]
        if not finite.size:
            return "without a finite number"
        if source is None:
            return ""
        low, high = float(finite.min()), float(finite.max())
        near = 1e-6 * max(high - low, 1e-30)
        if bool(((finite - low <= near) | (high - finite <= near)).all()):
            return f"{low:g} or {high:g} throughout, the limits of {source.op_type}"
        return ""

    def _source(self, name: str) -> NodeProto | None:
        """The operator with limits that the value comes from, if it is one."""
        for _ in range(64):
            node: NodeProto | None = self._producers.get(name)
            if node is None or normal_domain(node.domain):
                return None
            if node.op_type in _LIMITED:
                return node
            if node.op_type not in _MOVES:
                return None
            name = node.input[0]
        return None


def _is_constant(flat: Array) -> bool:
    """Whether all elements are equal, NaN included; seldom looks at more than the first ones."""
    for part in (flat[:64], flat):
        equal = part == flat[0]
        if is_float(flat.dtype) and np.isnan(to_float64(flat[:1]))[0]:
            equal = np.isnan(to_float64(part))
        if not np.all(equal):
            return False
    return True
