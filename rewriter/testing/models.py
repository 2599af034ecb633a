"""Models that hold one placeholder, made from a case."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from onnx import AttributeProto, ModelProto, NodeProto, TensorProto, ValueInfoProto, helper, numpy_helper

from rewriter.placeholder import TensorSpec
from rewriter.types import Dim, TensorType, dtype_from_name

if TYPE_CHECKING:
    from collections.abc import Mapping

    from rewriter.placeholder import Case, Placeholder
    from rewriter.placeholder.value import Array

#: A domain that no pass lists, so that only the name decides.
DOMAIN = "com.example"
_LOCAL = "test.local"

#: Where the placeholder stands, and how it is given its parameters there: as attributes, as constant inputs in the
#: operator's order, and as references to the attributes of a function.
PLACES = ("graph", "body", "function")


@dataclass(frozen=True)
class CaseModel:
    model: ModelProto
    feeds: Mapping[str, Array]
    #: Arguments for the reference; tensors as arrays.
    arguments: Mapping[str, Any]
    outputs: tuple[str, ...]


def build(
    placeholder: Placeholder,
    case: Case,
    *,
    dtype: str,
    opset: int,
    symbolic: bool,
    place: str,
    outputs: int | None = None,
) -> CaseModel:
    """The case as a model with the placeholder in ``place``."""
    count = len(placeholder.outputs) if outputs is None else outputs
    names = tuple(placeholder.outputs[:count])
    arguments = case.arguments(placeholder.signature.names)
    rng = np.random.default_rng(case.seed)
    feeds: dict[str, Array] = {}
    infos: list[ValueInfoProto] = []
    tensors: dict[str, list[str]] = {}
    parameters: dict[str, Any] = {}
    given: dict[str, Any] = {}

    def tensor(name: str, spec: TensorSpec) -> str:
        spec = spec.with_dtype(dtype) if spec.varies else spec
        feeds[name] = spec.sample(rng)
        shape: list[Dim] = [f"{name}_{i}" if symbolic else size for i, size in enumerate(spec.shape)]
        infos.append(helper.make_tensor_value_info(name, dtype_from_name(spec.dtype), shape))
        return name

    for name, value in arguments.items():
        if isinstance(value, TensorSpec):
            tensors[name] = [tensor(name, value)]
            given[name] = feeds[name]
        elif isinstance(value, tuple) and value and isinstance(value[0], TensorSpec):
            tensors[name] = [tensor(f"{name}_{i}", spec) for i, spec in enumerate(value)]
            given[name] = tuple(feeds[n] for n in tensors[name])
        elif value is None:
            tensors[name] = [""]
            given[name] = None
        else:
            parameters[name] = value
            given[name] = tuple(value) if isinstance(value, list) else value

    op_type = placeholder.matches[0].rpartition("::")[2]
    domain = placeholder.matches[0].rpartition("::")[0] or DOMAIN
    made: list[NodeProto]
    functions = []
    if place == "graph":
        made = [_node(op_type, domain, _flat(tensors), names, parameters)]
    elif place == "body":
        inputs, constants = _positional(placeholder, tensors, parameters)
        made = [_if(op_type, domain, inputs, constants, names)]
        infos.append(helper.make_tensor_value_info("condition", TensorProto.BOOL, []))
        feeds["condition"] = np.asarray(True)
    else:
        inputs = _flat(tensors)
        inner = _node(op_type, domain, inputs, names, {})
        for key, value in parameters.items():
            kind = _attribute(key, value).type
            inner.attribute.append(AttributeProto(name=key, type=kind, ref_attr_name=key))
        named = [name for name in inputs if name]
        imports = [helper.make_opsetid("", opset), helper.make_opsetid(domain, 1)]
        functions = [
            helper.make_function(_LOCAL, "Block", named, list(names), [inner], imports, list(parameters))
        ]
        made = [_node("Block", _LOCAL, named, names, parameters)]
    graph = helper.make_graph(made, "case", infos, [ValueInfoProto(name=name) for name in names])
    imports = [helper.make_opsetid("", opset), helper.make_opsetid(domain, 1)]
    if functions:
        imports.append(helper.make_opsetid(_LOCAL, 1))
    model = helper.make_model(graph, opset_imports=imports, functions=functions)
    # Functions exist from IR version 8 on.
    model.ir_version = max(8, helper.find_min_ir_version_for([imports[0]]))
    return CaseModel(model, feeds, given, names)


def case_types(placeholder: Placeholder, case: Case, dtype: str) -> dict[str, TensorType]:
    """Static types of the tensors of a case, by parameter name."""
    found: dict[str, TensorType] = {}
    for name, value in case.arguments(placeholder.signature.names).items():
        for spec in value if isinstance(value, tuple) else (value,):
            if isinstance(spec, TensorSpec):
                found[name] = TensorType(dtype_from_name(dtype if spec.varies else spec.dtype), spec.shape)
    return found


def _flat(tensors: Mapping[str, list[str]]) -> list[str]:
    names = [name for group in tensors.values() for name in group]
    while names and not names[-1]:
        names.pop()
    return names


def _node(
    op_type: str, domain: str, inputs: list[str], outputs: tuple[str, ...], parameters: Mapping[str, Any]
) -> NodeProto:
    node = NodeProto(op_type=op_type, domain=domain, name="the_placeholder")
    node.input.extend(inputs)
    node.output.extend(outputs)
    node.attribute.extend(_attribute(name, value) for name, value in parameters.items())
    return node


def _attribute(name: str, value: Any) -> AttributeProto:
    if isinstance(value, bool):
        value = int(value)
    if isinstance(value, (list, tuple)):
        value = [int(item) if isinstance(item, bool) else item for item in value]
        if not value:
            return helper.make_attribute(name, value, attr_type=AttributeProto.INTS)
    if isinstance(value, np.ndarray):
        value = numpy_helper.from_array(value)
    return helper.make_attribute(name, value)


def _positional(
    placeholder: Placeholder, tensors: Mapping[str, list[str]], parameters: Mapping[str, Any]
) -> tuple[list[str], list[NodeProto]]:
    """Inputs in the operator's order with the parameters as Constant nodes, as fall-through exports have them."""
    inputs: list[str] = []
    constants: list[NodeProto] = []
    for parameter in placeholder.signature.parameters:
        if parameter.name in tensors:
            inputs += tensors[parameter.name]
        elif parameter.name not in parameters:
            inputs.append("")
        else:
            value = parameters[parameter.name]
            array = np.asarray(value)
            if array.dtype.kind == "f" and not isinstance(value, np.ndarray):
                array = array.astype(np.float32)
            if array.size == 0:
                array = array.astype(np.int64)
            name = f"{parameter.name}_constant"
            constants.append(helper.make_node("Constant", [], [name], value=numpy_helper.from_array(array)))
            inputs.append(name)
    while inputs and not inputs[-1]:
        inputs.pop()
    return inputs, constants


def _if(
    op_type: str, domain: str, inputs: list[str], constants: list[NodeProto], names: tuple[str, ...]
) -> NodeProto:
    branches = []
    for prefix in ("then", "else"):
        outputs = tuple(f"{prefix}_{name}" for name in names)
        local = {name: f"{prefix}_{name}" for node in constants for name in node.output}
        copies = []
        for constant in constants:
            copy = NodeProto()
            copy.CopyFrom(constant)
            copy.output[0] = local[copy.output[0]]
            copies.append(copy)
        node = _node(op_type, domain, [local.get(name, name) for name in inputs], outputs, {})
        node.name = f"{prefix}_placeholder"
        branches.append(
            helper.make_graph([*copies, node], prefix, [], [ValueInfoProto(name=o) for o in outputs])
        )
    return helper.make_node(
        "If", ["condition"], list(names), then_branch=branches[0], else_branch=branches[1]
    )
