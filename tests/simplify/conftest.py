"""Helpers of this folder: models as text, their results in onnxruntime or ONNX's reference, the stage as a whole."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx
import onnx.reference
from onnx import ModelProto, numpy_helper, parser

from rewriter.simplify import Simplification, simplify
from rewriter.simplify.walk import graphs
from rewriter.storage import ModelFile

if TYPE_CHECKING:
    from collections.abc import Mapping


def model_of(text: str, *, opset: int = 17, ir: int = 10, imports: str = "") -> ModelProto:
    """A model from the text of its graph."""
    return parser.parse_model(f'<ir_version: {ir}, opset_import: ["": {opset}{imports}]>\n{text}')


def with_weights(model: ModelProto, **weights: np.ndarray) -> ModelProto:
    """``model`` with initializers added."""
    model.graph.initializer.extend(numpy_helper.from_array(array, name) for name, array in weights.items())
    return model


@dataclass
class Stage:
    """One run of the stage on a model, and both models as they would be delivered."""

    before: ModelProto
    result: Simplification
    after: ModelProto
    compared: list[tuple[ModelProto, ModelProto]] = field(default_factory=list)

    def types(self) -> list[str]:
        """Operator types of all scopes, in order."""
        return [
            f"{node.domain}::{node.op_type}" if node.domain else node.op_type
            for graph in graphs(self.after.graph)
            for node in graph.node
        ]


def run_stage(model: ModelProto, equal: Any = "values", base: Any = None, **options: Any) -> Stage:
    """Simplifies ``model``; ``equal="values"`` compares on inputs drawn from it, as the pipeline would."""
    compared: list[tuple[ModelProto, ModelProto]] = []
    before = ModelProto()
    before.CopyFrom(model)
    with ModelFile.from_proto(model, base=base) as file:

        def hook(old: ModelProto, new: ModelProto) -> str | None:
            compared.append((file.hydrate(old), file.hydrate(new)))
            return None if equal == "values" else equal(*compared[-1])

        result = simplify(file, file.model, equal=None if equal is None else hook, **options)
        after = file.hydrate(result.model)
    assert model == before, "the given model was changed"
    return Stage(before, result, after, compared)


def in_onnxruntime(model: ModelProto, feeds: Mapping[str, np.ndarray]) -> list[Any]:
    """The outputs of ``model``, not optimised: an optimiser's own faults are not the subject here."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.log_severity_level = 3
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(
        model.SerializeToString(), options, providers=["CPUExecutionProvider"]
    )
    return list(session.run(None, dict(feeds)))


def in_reference(model: ModelProto, feeds: Mapping[str, np.ndarray]) -> list[Any]:
    return list(onnx.reference.ReferenceEvaluator(model).run(None, dict(feeds)))


def assert_same(stage: Stage, *feeds: Mapping[str, np.ndarray], rtol: float = 0.0, atol: float = 0.0) -> None:
    """What is delivered computes what was given, on each of ``feeds``, in onnxruntime."""
    for feed in feeds:
        for old, new in zip(
            in_onnxruntime(stage.before, feed), in_onnxruntime(stage.after, feed), strict=True
        ):
            assert old.dtype == new.dtype
            assert old.shape == new.shape
            np.testing.assert_allclose(new, old, rtol=rtol, atol=atol)


def assert_deliverable(stage: Stage) -> None:
    """Standard, no larger than 5%, the same interface."""
    assert list(stage.after.graph.input) == list(stage.before.graph.input)
    assert list(stage.after.graph.output) == list(stage.before.graph.output)
    old = {(n.domain, n.op_type) for g in graphs(stage.before.graph) for n in g.node}
    new = {(n.domain, n.op_type) for g in graphs(stage.after.graph) for n in g.node}
    assert {domain for domain, _ in new} <= {domain for domain, _ in old} | {""}
    assert len(stage.after.SerializeToString()) <= 1.05 * len(stage.before.SerializeToString())
    assert list(stage.after.opset_import) == list(stage.before.opset_import)
    assert not [entry for entry in stage.after.metadata_props if entry.key.startswith("onnxsim")]
    count = [sum(len(g.node) for g in graphs(m.graph)) for m in (stage.before, stage.after)]
    assert count[1] <= count[0]


def draw(*shape: int, seed: int = 0, dtype: Any = np.float32) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape).astype(dtype)
