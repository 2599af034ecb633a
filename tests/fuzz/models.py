"""Valid models to start from: placeholders in the main graph, in bodies, in functions, and nested."""

from __future__ import annotations

import functools
import random
import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
from onnx import (
    AttributeProto,
    FunctionProto,
    ModelProto,
    NodeProto,
    TensorProto,
    helper,
    numpy_helper,
    shape_inference,
)

from rewriter.decompose import decompose
from rewriter.errors import RewriteError
from rewriter.placeholder.registry import Selection
from rewriter.storage import ModelFile
from rewriter.testing.models import PLACES, build

if TYPE_CHECKING:
    from collections.abc import Callable

    from onnx import GraphProto

    from rewriter.placeholder import Case, Placeholder

DOMAIN = "com.example"
LOCAL = "test.local"
SHAPE = (2, 4, 6, 6)

#: Names of values of that shape.
_FLOWS = re.compile(r"^(p|s|f|if|loop|scan)\d+$")

#: Operator → attributes, for placeholders that take a float tensor of rank 4 and give one of the same type and shape.
UNARY: dict[str, dict[str, Any]] = {
    "Roll": {"shifts": [1, -2], "dims": [-1, 1]},
    "Swish": {},
    "Flip": {"dims": [2]},
    "Tril": {"diagonal": 1},
    "Mish": {},
    "Gelu": {"approximate": "tanh"},
    "RmsNorm": {"normalized_shape": [6]},
    "GroupNorm": {"num_groups": 2},
    "LayerNorm": {"normalized_shape": [6], "eps": 1e-5},
    "Softplus": {"beta": 2.0},
    "Elu": {"alpha": 0.5},
    "HardSwish": {},
}


def valid_model(rng: random.Random) -> ModelProto:
    """A model that onnx's checker accepts, with at least one placeholder."""
    return _Composer(rng).model() if rng.random() < 0.6 else _of_case(rng)


@dataclass
class _Composer:
    """Puts nodes, bodies and functions together at random."""

    rng: random.Random
    count: int = 0
    functions: list[FunctionProto] = field(default_factory=list)
    opset: int = 17
    symbolic: bool = False

    def fresh(self, stem: str) -> str:
        self.count += 1
        return f"{stem}{self.count}"

    def model(self) -> ModelProto:
        rng = self.rng
        self.opset = rng.choice((11, 12, 13, 14, 16, 17, 18, 20, 21, 23))
        self.symbolic = rng.random() < 0.5
        dims: list[Any] = ["batch", *SHAPE[1:]] if self.symbolic else list(SHAPE)
        nodes, result = self.nodes("x", rng.randint(1, 4), depth=0)
        graph = helper.make_graph(
            nodes,
            "fuzz",
            [
                helper.make_tensor_value_info("x", TensorProto.FLOAT, dims),
                helper.make_tensor_value_info("condition", TensorProto.BOOL, []),
                helper.make_tensor_value_info("rounds", TensorProto.INT64, []),
            ],
            [
                helper.make_tensor_value_info(
                    result, TensorProto.FLOAT, dims if rng.random() < 0.8 else [None] * 4
                )
            ],
            [
                numpy_helper.from_array(np.ones(SHAPE[-1], np.float32), "weight"),
                numpy_helper.from_array(np.full((64, 8), 0.5, np.float32), "large"),
            ],
        )
        if rng.random() < 0.5:
            graph.value_info.extend(
                helper.make_tensor_value_info(name, TensorProto.FLOAT, dims)
                for node in graph.node
                for name in node.output
                if name != result and rng.random() < 0.7 and _FLOWS.match(name)
            )
        self.extras(graph)
        imports = [helper.make_opsetid("", self.opset), helper.make_opsetid(DOMAIN, 1)]
        imports += [helper.make_opsetid(LOCAL, 1)] if self.functions else []
        model = helper.make_model(graph, opset_imports=imports, functions=self.functions)
        model.ir_version = max(8, helper.find_min_ir_version_for(imports[:1]))
        return model

    def extras(self, graph: GraphProto) -> None:
        """Sparse, quantisation and other rare data."""
        if self.rng.random() < 0.1:
            sparse = graph.sparse_initializer.add(dims=[3, 4])
            sparse.values.CopyFrom(numpy_helper.from_array(np.ones(2, np.float32), "sparse"))
            sparse.indices.CopyFrom(numpy_helper.from_array(np.asarray([1, 5]), "sparse_indices"))
        if self.rng.random() < 0.1:
            annotation = graph.quantization_annotation.add(tensor_name="x")
            annotation.quant_parameter_tensor_names.add(key="SCALE_TENSOR", value="weight")
        if self.rng.random() < 0.2:
            graph.metadata_props.add(key="note", value="kept")

    def nodes(self, name: str, count: int, depth: int, *, local: bool = False) -> tuple[list[NodeProto], str]:
        """A chain of ``count`` steps from value ``name``; the nodes and the last value.

        ``local``: inside of a function, where outer values cannot be seen.
        """
        steps: list[Callable[[str, int, bool], tuple[list[NodeProto], str]]] = [
            self.placeholder,
            self.placeholder,
            self.standard,
            self.shaped,
        ]
        if depth < 3:
            steps.append(self.call)
            steps += [] if local else [self.branch, self.loop, self.scan]
        made: list[NodeProto] = []
        for at in range(count):
            step = self.placeholder if at == count - 1 and depth == 0 else self.rng.choice(steps)
            new, name = step(name, depth, local)
            made += new
        return made, name

    def placeholder(self, name: str, depth: int, local: bool) -> tuple[list[NodeProto], str]:
        op_type = self.rng.choice([*UNARY, "Pair", "Leftover"] if self.rng.random() < 0.1 else [*UNARY])
        attributes, out = UNARY.get(op_type, {}), self.fresh("p")
        if attributes and op_type in ("Roll", "Flip", "Tril") and self.rng.random() < 0.4:
            # The fall-through form: every parameter a constant input.
            made, inputs = [], [name]
            for value in attributes.values():
                inputs.append(self.fresh("c"))
                tensor = numpy_helper.from_array(np.asarray(value))
                made.append(helper.make_node("Constant", [], [inputs[-1]], value=tensor))
            return [*made, helper.make_node(op_type, inputs, [out], out, domain=DOMAIN)], out
        return [helper.make_node(op_type, [name], [out], out, domain=DOMAIN, **attributes)], out

    def standard(self, name: str, depth: int, local: bool) -> tuple[list[NodeProto], str]:
        out = self.fresh("s")
        match self.rng.randrange(4):
            case 0:
                return [helper.make_node("Relu", [name], [out], out)], out
            case 1 if not local:
                return [helper.make_node("Mul", [name, "weight"], [out])], out
            case 2:
                cast = self.fresh("k")
                return [
                    helper.make_node("Cast", [name], [cast], to=TensorProto.DOUBLE),
                    helper.make_node("Cast", [cast], [out], to=TensorProto.FLOAT),
                ], out
            case _:
                return [helper.make_node("Add", [name, name], [out])], out

    def shaped(self, name: str, depth: int, local: bool) -> tuple[list[NodeProto], str]:
        """Arithmetic between a Shape and a Reshape, which is folded."""
        shape, head, tail, index, joined, out = (self.fresh("h") for _ in range(6))
        zero = numpy_helper.from_array(np.asarray([0]))
        rest = numpy_helper.from_array(np.asarray(SHAPE[1:]))
        return [
            helper.make_node("Shape", [name], [shape]),
            helper.make_node("Constant", [], [index], value=zero),
            helper.make_node("Constant", [], [tail], value=rest),
            helper.make_node("Gather", [shape, index], [head], axis=0),
            helper.make_node("Concat", [head, tail], [joined], axis=0),
            helper.make_node("Reshape", [name, joined], [out]),
        ], out

    def body(self, name: str, depth: int, stem: str) -> tuple[list[NodeProto], str]:
        nodes, result = self.nodes(name, self.rng.randint(1, 2), depth + 1)
        if self.rng.random() < 0.5 or result == name:
            out = self.fresh(stem)
            nodes.append(helper.make_node("Identity", [result], [out]))
            result = out
        return nodes, result

    def branch(self, name: str, depth: int, local: bool) -> tuple[list[NodeProto], str]:
        graphs = []
        for stem in ("then", "else"):
            nodes, result = self.body(name, depth, stem)
            info = helper.make_tensor_value_info(
                result, TensorProto.FLOAT, None if self.rng.random() < 0.3 else [None, *SHAPE[1:]]
            )
            graphs.append(helper.make_graph(nodes, stem, [], [info]))
        out = self.fresh("if")
        node = helper.make_node("If", ["condition"], [out], out, then_branch=graphs[0], else_branch=graphs[1])
        return [node], out

    def loop(self, name: str, depth: int, local: bool) -> tuple[list[NodeProto], str]:
        i, go, state, out, went = (self.fresh(stem) for stem in ("i", "go", "state", "loop", "went"))
        nodes, result = self.body(state, depth, "next")
        nodes.append(helper.make_node("Identity", [go], [went]))
        info = functools.partial(helper.make_tensor_value_info, elem_type=TensorProto.FLOAT)
        dims = [None, *SHAPE[1:]]
        graph = helper.make_graph(
            nodes,
            "loop",
            [
                helper.make_tensor_value_info(i, TensorProto.INT64, []),
                helper.make_tensor_value_info(go, TensorProto.BOOL, []),
                info(state, shape=dims),
            ],
            [helper.make_tensor_value_info(went, TensorProto.BOOL, []), info(result, shape=dims)],
        )
        return [helper.make_node("Loop", ["rounds", "condition", name], [out], out, body=graph)], out

    def scan(self, name: str, depth: int, local: bool) -> tuple[list[NodeProto], str]:
        state, item, made, unused, out = (self.fresh(stem) for stem in ("st", "it", "mk", "un", "scan"))
        nodes, result = self.body(state, depth, "sc")
        nodes.append(helper.make_node("Identity", [item], [made]))
        row = helper.make_tensor_value_info
        graph = helper.make_graph(
            nodes,
            "scan",
            [row(state, TensorProto.FLOAT, None), row(item, TensorProto.FLOAT, None)],
            [row(result, TensorProto.FLOAT, None), row(made, TensorProto.FLOAT, None)],
        )
        return [
            helper.make_node("Scan", [name, "weight"], [out, unused], out, body=graph, num_scan_inputs=1)
        ], out

    def call(self, name: str, depth: int, local: bool) -> tuple[list[NodeProto], str]:
        """A call of a function of its own or of one that is there already."""
        out = self.fresh("f")
        if self.functions and not local and self.rng.random() < 0.3:
            known = self.rng.choice(self.functions)
            attributes = {"amount": [2]} if known.attribute else {}
            return [helper.make_node(known.name, [name], [out], domain=LOCAL, **attributes)], out
        nodes, result = self.nodes("a", self.rng.randint(1, 2), depth + 1, local=True)
        attributes = {}
        if self.rng.random() < 0.4:
            roll, result = result, self.fresh("r")
            nodes.append(helper.make_node("Roll", [roll], [result], domain=DOMAIN, dims=[1]))
            kind = AttributeProto.INTS
            nodes[-1].attribute.append(AttributeProto(name="shifts", type=kind, ref_attr_name="amount"))
            attributes = {"amount": [1]}
        own = self.rng.choice((self.opset, self.opset, 18)) if self.opset >= 18 else self.opset
        imports = [
            helper.make_opsetid("", own),
            helper.make_opsetid(DOMAIN, 1),
            helper.make_opsetid(LOCAL, 1),
        ]
        function = helper.make_function(
            LOCAL, self.fresh("Block"), ["a"], [result], nodes, imports, list(attributes)
        )
        self.functions.append(function)
        return [helper.make_node(function.name, [name], [out], domain=LOCAL, **attributes)], out


# --- the cases of the passes ------------------------------------------------------------------------------------


@functools.cache
def _cases() -> list[tuple[Placeholder, Case]]:
    found = [item for item in Selection.load("auto").passes if item.matches]
    return [(item, case) for item in found for case in item.cases()]


def warm_up() -> None:
    """Load the passes and their cases, which every process would load again."""
    _of_case(random.Random(0))


def _of_case(rng: random.Random) -> ModelProto:
    """A case of any pass, in the graph, in a body, or in a function."""
    placeholder, case = rng.choice(_cases())
    dtype = rng.choice(tuple(case.dtypes or placeholder.dtypes))
    lowest, highest = case.opsets or (11, 23)
    opset = rng.choice([n for n in (11, 13, 16, 17, 18, 21, 23) if lowest <= n <= highest] or [highest])
    made = build(
        placeholder,
        case,
        dtype=dtype,
        opset=opset,
        symbolic=case.symbolic and rng.random() < 0.5,
        place=rng.choice(PLACES),
    )
    _declare_outputs(made.model)
    return made.model


def _declare_outputs(model: ModelProto) -> None:
    """Give the outputs the types that they have once the placeholder is decomposed."""
    with ModelFile.from_proto(model) as file:
        try:
            decompose(file, Selection.load("auto"))
        except RewriteError:
            return
        types = shape_inference.infer_shapes(file.model).graph.output
    for value, known in zip(model.graph.output, types, strict=True):
        value.type.CopyFrom(known.type)
