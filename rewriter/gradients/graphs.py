"""What ships: nodes interpreted in float64, as a side that is differentiated."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from onnx import ValueInfoProto, helper

from rewriter.errors import LeftoverPlaceholderError
from rewriter.execution.values import element_type, from_torch
from rewriter.gradients.sides import Side
from rewriter.interpret import Interpreter
from rewriter.storage import ModelFile
from rewriter.torch.arguments import split

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from onnx import ModelProto

    from rewriter.decompose import Region
    from rewriter.gradients.own import Example
    from rewriter.placeholder.registry import Selection


def interpreted(
    model: ModelProto,
    outputs: Sequence[str],
    file: ModelFile | None = None,
    name: str = "the delivered graph",
) -> Side:
    """``model`` in float64, its inputs by name; ``outputs`` by position, "" for one that is not asked for.

    ``file`` holds its withheld weights.  CannotInterpretError where the interpreter lacks an operator.
    """
    interpreter = Interpreter(model, file=file, dtype=torch.float64)
    wanted = [output for output in outputs if output]

    def call(given: Mapping[str, torch.Tensor]) -> list[torch.Tensor | None]:
        found = interpreter({key: given[key] for key in interpreter.inputs if key in given}, wanted)
        return [found[output] if output else None for output in outputs]

    return Side(name, call)


def decomposed(
    example: Example, results: int, selection: Selection, opset: int
) -> tuple[ModelProto, Region] | None:
    """The operator's call as a model, decomposed by the pass that takes it; None where none does.

    The model's inputs have the names of the operator's parameters, its outputs are ``output_0`` and so on.
    """
    from rewriter.decompose import decompose

    operator = example.operator
    call = split(operator.parameters, {**example.plain, **example.tensors})
    names = [f"output_{number}" for number in range(results)]
    node = helper.make_node(
        operator.operator,
        [name if value is not None else "" for name, value in call.inputs.items()],
        names,
        name=operator.operator,
        domain=operator.domain,
    )
    node.attribute.extend(helper.make_attribute(name, value) for name, value in call.attributes.items())
    inputs = [
        helper.make_tensor_value_info(name, element_type(from_torch(value)), list(value.shape))
        for name, value in call.tensors.items()
    ]
    graph = helper.make_graph([node], "operator", inputs, [ValueInfoProto(name=name) for name in names])
    imports = [helper.make_opsetid("", opset), helper.make_opsetid(operator.domain, operator.version)]
    model = helper.make_model(graph, opset_imports=imports)
    model.ir_version = helper.find_min_ir_version_for([imports[0]])
    with ModelFile.from_proto(model) as file:
        try:
            regions = decompose(file, selection).regions
        except LeftoverPlaceholderError:
            return None
        return file.hydrate(file.model), regions[0]
