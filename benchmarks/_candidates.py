"""The same operator as PyTorch runs it, as exporters write it and as the pass writes it.

ONNX operators are measured inside a model, between a Neg on each input and each output, and the time of those Negs
alone is taken off: at a model's boundary a Reshape costs a copy, and an optimiser may do there what it cannot do inside.
"""

from __future__ import annotations

import io
import logging
import warnings
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx
import onnxruntime
import torch
from onnx import TensorProto, helper, numpy_helper

from rewriter.decompose import decompose
from rewriter.placeholder import Selection
from rewriter.storage import ModelFile
from rewriter.testing.models import build

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from operator_cases import Row

    from rewriter.placeholder import Placeholder

_FLOATS = (TensorProto.FLOAT, TensorProto.FLOAT16, TensorProto.DOUBLE)


@dataclass
class Candidates:
    """Everything to be timed for one row; the key of ONNX models starts with ``onnx:``."""

    calls: dict[str, Callable[[], object]] = field(default_factory=dict)
    #: Why there is none of that name, or which form it is.
    notes: dict[str, str] = field(default_factory=dict)


def candidates(row: Row, placeholder: Placeholder, *, opset: int, threads: int) -> Candidates:
    """PyTorch, the limit, the Negs alone, each exporter that can, and ours; results that are wrong are left out."""
    made = Candidates()
    built = build(placeholder, row.case, dtype="float32", opset=opset, symbolic=False, place="graph")
    given = {name: _torch(value) for name, value in built.arguments.items()}
    function = row.torch or placeholder.reference
    with torch.no_grad():
        result = function(**given)
    results = [r for r in (result if isinstance(result, (tuple, list)) else [result]) if r is not None]
    expected = [r.detach().numpy() for r in results]

    def eager() -> object:
        with torch.no_grad():
            return function(**given)

    made.calls["torch"] = eager
    made.calls["limit"] = _limit(row, built.feeds, expected)
    feeds = {name: array for name, array in built.feeds.items() if name not in row.constants}
    negated = {name: _negated(array) for name, array in feeds.items()}

    models: dict[str, Callable[[], onnx.ModelProto]] = {
        "ours": lambda: _ours(row, placeholder, opset, len(expected), made.notes)
    }
    if row.exported:
        models["legacy"] = lambda: _exported(row, function, given, feeds, opset, dynamo=False)
        if opset >= 18:
            models["dynamo"] = lambda: _exported(row, function, given, feeds, opset, dynamo=True)
    wanted = [np.asarray(_negated(array)) for array in expected]
    made.calls["onnx:base"] = _runner(_base(feeds, expected, opset), list(negated.values()), [], threads)
    for name, make in models.items():
        try:
            call = _runner(make(), list(negated.values()), wanted, threads)
        except Exception as error:  # noqa: BLE001
            made.notes[name] = " ".join(f"{type(error).__name__}: {error}".split())[:200]
            if name == "ours":
                raise
            continue
        made.calls[f"onnx:{name}"] = call
    return made


def _torch(value: Any) -> Any:
    if isinstance(value, np.ndarray):
        return torch.from_numpy(np.array(value))
    if isinstance(value, tuple) and value and isinstance(value[0], np.ndarray):
        return tuple(_torch(item) for item in value)
    return value


def _negated(array: Any) -> Any:
    return -array if array.dtype.kind == "f" else array


def _limit(row: Row, feeds: Mapping[str, Any], results: Sequence[Any]) -> Callable[[], object]:
    if row.limit is not None:
        batch, m, k, n = row.limit
        left, right, product = torch.rand(batch, m, k), torch.rand(batch, k, n), torch.empty(batch, m, n)
        return lambda: torch.bmm(left, right, out=product)
    size = (sum(a.nbytes for a in feeds.values()) + sum(a.nbytes for a in results)) // 2
    source, target = torch.zeros(max(size, 1), dtype=torch.uint8), torch.zeros(max(size, 1), dtype=torch.uint8)
    return lambda: target.copy_(source)


def _ours(
    row: Row, placeholder: Placeholder, opset: int, outputs: int, notes: dict[str, str]
) -> onnx.ModelProto:
    built = build(
        placeholder, row.case, dtype="float32", opset=opset, symbolic=False, place="graph", outputs=outputs
    )
    graph = built.model.graph
    for info in [i for i in graph.input if i.name in row.constants]:
        graph.input.remove(info)
        graph.initializer.append(numpy_helper.from_array(np.asarray(built.feeds[info.name]), info.name))
    node = graph.node[0]
    for info in graph.input:
        if info.type.tensor_type.elem_type in _FLOATS:
            graph.node.insert(0, helper.make_node("Neg", [f"{info.name}_given"], [info.name]))
            info.name = f"{info.name}_given"
    # Of the placeholder's outputs no type is known yet: the Negs behind them are added once it is replaced.
    with ModelFile.from_proto(built.model) as file:
        done = decompose(file, Selection((placeholder,), frozenset({placeholder.pass_name()})))
        notes["form"] = done.regions[0].decomposition if done.regions else ""
        model = file.hydrate(file.model)
    del node
    inferred = onnx.shape_inference.infer_shapes(model)
    types = {v.name: v.type.tensor_type.elem_type for v in [*inferred.graph.value_info, *inferred.graph.output]}
    for info in model.graph.output:
        dtype = types.get(info.name) or TensorProto.FLOAT
        name = info.name
        if dtype in _FLOATS:
            model.graph.node.append(helper.make_node("Neg", [name], [f"{name}_taken"]))
            info.CopyFrom(helper.make_tensor_value_info(f"{name}_taken", dtype, None))
    return model


def _exported(
    row: Row,
    function: Callable[..., Any],
    given: Mapping[str, Any],
    feeds: Mapping[str, Any],
    opset: int,
    *,
    dynamo: bool,
) -> onnx.ModelProto:
    """What an exporter makes of the operator between the same Negs."""

    class Between(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            for name in row.constants:
                if given.get(name) is not None:
                    self.register_buffer(name, given[name])

        def forward(self, *tensors: torch.Tensor) -> Any:
            arguments = dict(given)
            arguments |= {name: getattr(self, name) for name in row.constants if given.get(name) is not None}
            left = list(tensors)
            for name, value in given.items():
                if name in row.constants or value is None:
                    continue
                if isinstance(value, torch.Tensor):
                    arguments[name] = _flip(left.pop(0))
                elif isinstance(value, tuple) and value and isinstance(value[0], torch.Tensor):
                    arguments[name] = tuple(_flip(left.pop(0)) for _ in value)
            result = function(**arguments)
            if isinstance(result, (tuple, list)):
                return tuple(_flip(r) for r in result if r is not None)
            return _flip(result)

    arguments = tuple(torch.from_numpy(np.array(_negated(array))) for array in feeds.values())
    logging.disable(logging.ERROR)
    try:
        with warnings.catch_warnings(), torch.no_grad():
            warnings.simplefilter("ignore")
            if dynamo:
                program = torch.onnx.export(
                    Between().eval(), arguments, dynamo=True, opset_version=opset, verbose=False
                )
                assert program is not None
                return program.model_proto
            buffer = io.BytesIO()
            torch.onnx.export(Between().eval(), arguments, buffer, dynamo=False, opset_version=opset)
            return onnx.load_from_string(buffer.getvalue())
    finally:
        logging.disable(logging.NOTSET)


def _flip(tensor: torch.Tensor) -> torch.Tensor:
    return -tensor if tensor.is_floating_point() else tensor


def _base(feeds: Mapping[str, Any], results: Sequence[Any], opset: int) -> onnx.ModelProto:
    """The Negs alone: one for each input and each output."""
    nodes, inputs, outputs = [], [], []
    arrays = {**dict(feeds), **{f"result_{i}": array for i, array in enumerate(results)}}
    for name, array in arrays.items():
        if array.dtype.kind != "f":
            continue
        dtype = int(helper.np_dtype_to_tensor_dtype(array.dtype))
        inputs.append(helper.make_tensor_value_info(name, dtype, array.shape))
        outputs.append(helper.make_tensor_value_info(f"{name}_negated", dtype, array.shape))
        nodes.append(helper.make_node("Neg", [name], [f"{name}_negated"]))
    model = helper.make_model(
        helper.make_graph(nodes, "base", inputs, outputs), opset_imports=[helper.make_opsetid("", opset)]
    )
    model.ir_version = 8
    return model


def _runner(
    model: onnx.ModelProto, inputs: Sequence[Any], expected: Sequence[Any], threads: int
) -> Callable[[], object]:
    """A call that runs the model, its inputs and outputs bound once; AssertionError where it gives something else."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    options.inter_op_num_threads = 1
    options.log_severity_level = 4
    session = onnxruntime.InferenceSession(
        model.SerializeToString(), options, providers=["CPUExecutionProvider"]
    )
    wanted = session.get_inputs()
    if not expected:
        # The Negs alone take the results' shapes too.
        inputs = [np.ones([int(d) for d in i.shape], _dtype_of(i.type)) for i in wanted]
    assert len(wanted) == len(inputs), f"the model has {len(wanted)} inputs, {len(inputs)} are given"
    binding = session.io_binding()
    for info, array in zip(wanted, inputs, strict=True):
        value = onnxruntime.OrtValue.ortvalue_from_numpy(np.ascontiguousarray(array).reshape(array.shape))
        binding.bind_ortvalue_input(info.name, value)
    if expected:
        found = session.run(None, {i.name: a for i, a in zip(wanted, inputs, strict=True)})
        for got, want in zip(found, expected, strict=True):
            assert got.shape == want.shape, f"wrong: shape {got.shape}, expected {want.shape}"
            scale = max(float(np.abs(want[np.isfinite(want)]).max(initial=0)), 1e-30)
            off = float(np.abs(got.astype(np.float64) - want).max(initial=0)) / scale
            assert off < 1e-3, f"wrong: off by {off:.2g} of the largest value"
    for i, info in enumerate(session.get_outputs()):
        if expected:
            shape, dtype = expected[i].shape, expected[i].dtype
        else:
            shape, dtype = tuple(int(d) for d in info.shape), _dtype_of(info.type)
        value = onnxruntime.OrtValue.ortvalue_from_shape_and_type(list(shape), dtype)
        binding.bind_ortvalue_output(info.name, value)
    return lambda: session.run_with_iobinding(binding)


def _dtype_of(text: str) -> Any:
    return {"tensor(float)": np.float32, "tensor(float16)": np.float16, "tensor(double)": np.float64}[text]
