"""Folds an inference-mode BatchNormalization into the convolution before it.

    BN(conv(x, W) + b) = conv(x, W·s) + (b − mean)·s + bias,   s = scale / √(var + ε), one factor per output channel

onnxsim could only do it with every weight in its memory.  Here the weights of one convolution are loaded at a time,
the arithmetic is float64's, and each result is rounded once.  The rules:

1.  The convolution is a standard Conv (any group, with or without bias) of the main graph; its weight, its bias and the
    normalisation's four parameters are initializers or Constant nodes, none of them a graph input.
2.  Nothing but the normalisation reads the convolution's output: no other node, no body, no graph output.
3.  The normalisation has one output and is in inference mode.
4.  All six are float32, float16 or float64, of the same type, and the result is finite.
5.  No other node reads the weight or the bias, and nothing pins it: a shared weight would be stored twice.
6.  The new weights fit into what a model in memory may hold; what comes later in the graph is left, and noted.

The convolution keeps its node name and metadata; the result has the normalisation's output name.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np
from onnx import ModelProto, NodeProto, TensorProto, numpy_helper

from rewriter.errors import RewriteError
from rewriter.simplify import hiding, walk

if TYPE_CHECKING:
    from collections.abc import Collection

    from rewriter.storage import ModelFile

#: Bytes of new weights that a model may hold inline: protobuf ends at 2 GiB.
BUDGET: Final = 1 << 30

_TYPES: Final = (TensorProto.FLOAT, TensorProto.FLOAT16, TensorProto.DOUBLE)


@dataclass(frozen=True)
class Folded:
    """``model`` is the given one where nothing was folded."""

    model: ModelProto
    count: int
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class _Pair:
    conv: NodeProto
    norm: NodeProto


def fold(model: ModelProto, file: ModelFile, pinned: Collection[str] = (), *, budget: int = BUDGET) -> Folded:
    """``model`` (not changed) with each BatchNormalization folded that the rules allow."""
    finder = _Finder(model, pinned)
    pairs = finder.pairs()
    if not pairs:
        return Folded(model, 0)
    new: dict[str, TensorProto] = {}
    replaced: dict[int, NodeProto] = {}
    dropped: set[int] = set()
    left = 0
    for pair in pairs:
        needs = file.nbytes(finder.constants[pair.conv.input[1]])
        if needs > budget:
            left += 1
            continue
        tensors = _fold(pair, finder, file)
        if tensors is None:
            continue
        budget -= needs
        weight, bias = tensors
        new |= {weight.name: weight, bias.name: bias}
        conv = NodeProto()
        conv.CopyFrom(pair.conv)
        del conv.input[:]
        conv.input.extend([pair.conv.input[0], weight.name, bias.name])
        conv.output[0] = pair.norm.output[0]
        replaced[id(pair.conv)] = conv
        dropped.add(id(pair.norm))
    notes = (f"{left} BatchNormalization nodes were not folded: the weights are too large",) if left else ()
    if not replaced:
        return Folded(model, 0, notes)
    return Folded(_rebuilt(model, finder, new, replaced, dropped), len(replaced), notes)


class _Finder:
    """Finds the pairs; holds the main graph's constants by name."""

    def __init__(self, model: ModelProto, pinned: Collection[str]) -> None:
        graph = model.graph
        self.taken = {name for scope in walk.graphs(graph) for name in walk.defined(scope)}
        inputs = {value.name for value in graph.input}
        self.constants = {t.name: t for t in graph.initializer if t.name not in inputs}
        self.readers: Counter[str] = Counter(pinned)
        self.readers.update(value.name for value in graph.output)
        #: The same message objects throughout, so that they can be told apart by identity.
        self.nodes = list(graph.node)
        for node in self.nodes:
            self.readers.update(name for name in node.input if name)
            self.readers.update(walk.captures(node))
            if node.op_type == "Constant" and hiding.is_default_domain(node.domain):
                for attribute in node.attribute:
                    if attribute.name == "value" and attribute.HasField("t"):
                        self.constants[node.output[0]] = attribute.t

    def pairs(self) -> list[_Pair]:
        convs = {
            node.output[0]: node
            for node in self.nodes
            if node.op_type == "Conv" and hiding.is_default_domain(node.domain) and len(node.output) == 1
        }
        found = []
        for norm in self.nodes:
            if norm.op_type != "BatchNormalization" or not hiding.is_default_domain(norm.domain):
                continue
            conv = convs.get(norm.input[0]) if norm.input else None
            if conv is not None and self._fits(conv, norm):
                found.append(_Pair(conv, norm))
        return found

    def _fits(self, conv: NodeProto, norm: NodeProto) -> bool:
        parameters = norm.input[1:]
        own = [name for name in conv.input[1:] if name]
        return (
            len(parameters) == 4
            and len(conv.input) in (2, 3)
            and bool(conv.input[1])
            and sum(1 for name in norm.output if name) == 1
            and bool(norm.output[0])
            and not any(a.name == "training_mode" and a.i for a in norm.attribute)
            and self.readers[conv.output[0]] == 1
            and all(name in self.constants for name in (*own, *parameters))
            and all(self.readers[name] == 1 for name in own)
            and len({self.constants[name].data_type for name in (*own, *parameters)}) == 1
            and self.constants[own[0]].data_type in _TYPES
        )

    def fresh(self, stem: str) -> str:
        name, i = stem, 0
        while name in self.taken:
            i += 1
            name = f"{stem}_{i}"
        self.taken.add(name)
        return name


def _fold(pair: _Pair, finder: _Finder, file: ModelFile) -> tuple[TensorProto, TensorProto] | None:
    """The new weight and bias; None where shapes do not fit or a result is not finite."""
    named = [*pair.conv.input[1:], *pair.norm.input[1:]]
    try:
        arrays = [file.array(finder.constants[name]) for name in named if name]
    except RewriteError:  # damaged data is storage's to report, where the model is saved
        return None
    weight = arrays[0]
    if weight.ndim < 3 or any(array.shape != (len(weight),) for array in arrays[1:]):
        return None
    epsilon = next((a.f for a in pair.norm.attribute if a.name == "epsilon"), np.float32(1e-5))
    scale, shift, mean, var = (array.astype(np.float64) for array in arrays[-4:])
    bias = arrays[1].astype(np.float64) if len(arrays) == 6 else np.zeros(len(weight))
    with np.errstate(all="ignore"):
        factor = scale / np.sqrt(var + float(epsilon))
        # In place of a whole float64 copy: one output channel at a time.
        new_weight = np.empty(weight.shape, weight.dtype)
        for channel, by in enumerate(factor):
            new_weight[channel] = (weight[channel].astype(np.float64) * by).astype(weight.dtype)
        new_bias = ((bias - mean) * factor + shift).astype(weight.dtype)
    if not (np.isfinite(new_weight).all() and np.isfinite(new_bias).all()):
        return None
    stem = pair.conv.input[1]
    biased = len(arrays) == 6
    return (
        numpy_helper.from_array(new_weight, finder.fresh(f"{stem}_folded")),
        numpy_helper.from_array(
            new_bias, finder.fresh(f"{pair.conv.input[2] if biased else stem + '_bias'}_folded")
        ),
    )


def _rebuilt(
    model: ModelProto,
    finder: _Finder,
    new: dict[str, TensorProto],
    replaced: dict[int, NodeProto],
    dropped: set[int],
) -> ModelProto:
    nodes = [replaced.get(id(node), node) for node in finder.nodes if id(node) not in dropped]
    used = {value.name for value in model.graph.output}
    for node in nodes:
        used.update(node.input)
        used.update(walk.captures(node))
    # Only what folding has left without a reader: constants that nothing read before are not its business.
    gone = {name for name in finder.constants if finder.readers[name] and name not in used}
    result = ModelProto()
    result.CopyFrom(model)
    result.graph.ClearField("node")
    result.graph.ClearField("initializer")
    result.graph.node.extend(
        node for node in nodes if not (node.op_type == "Constant" and node.output and node.output[0] in gone)
    )
    inputs = {value.name for value in model.graph.input}
    result.graph.initializer.extend(
        tensor for tensor in model.graph.initializer if tensor.name not in gone or tensor.name in inputs
    )
    result.graph.initializer.extend(new.values())
    return result
