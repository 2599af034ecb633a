"""The same operator as PyTorch runs it, as exporters write it and as the pass writes it.

ONNX operators are measured inside a model, behind a Neg of each input and before an operator that takes one element
of each output, and the time of these neighbours alone is taken off: at a model's boundary a Reshape costs a copy, and
an optimiser may do there what it cannot do inside.
"""

from __future__ import annotations

import hashlib
import io
import logging
import tempfile
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

_NUMPY = {
    "tensor(float)": np.float32,
    "tensor(float16)": np.float16,
    "tensor(double)": np.float64,
    "tensor(int64)": np.int64,
    "tensor(int32)": np.int32,
    "tensor(bool)": np.bool_,
}
_FLOATS = (TensorProto.FLOAT, TensorProto.FLOAT16, TensorProto.DOUBLE)


@dataclass
class Candidates:
    """Everything to be timed for one row; the key of ONNX models starts with ``onnx:``."""

    calls: dict[str, Callable[[], object]] = field(default_factory=dict)
    #: Why there is none of that name, or which form it is.
    notes: dict[str, str] = field(default_factory=dict)
    #: What onnxruntime makes of each ONNX model, to see whether two are the same.
    optimised: dict[str, str] = field(default_factory=dict)


def candidates(row: Row, placeholder: Placeholder, *, opset: int, threads: int) -> Candidates:
    """PyTorch, the limit, the neighbours alone, each exporter that can, and ours; wrong results are left out."""
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
    models: dict[str, Callable[[], onnx.ModelProto]] = {
        "ours": lambda: _ours(row, placeholder, opset, len(expected), made.notes)
    }
    if row.exported:
        models["legacy"] = lambda: _exported(row, function, given, feeds, opset, dynamo=False)
        if opset >= 18:
            models["dynamo"] = lambda: _exported(row, function, given, feeds, opset, dynamo=True)
    for name, make in models.items():
        try:
            model = make()
            _check(model, list(feeds.values()), expected)
            call, made.optimised[name] = _runner(_surrounded(model, expected), feeds, threads)
        except Exception as error:
            made.notes[name] = " ".join(f"{type(error).__name__}: {error}".split())[:200]
            if name == "ours":
                raise
            continue
        made.calls[f"onnx:{name}"] = call
    made.calls["onnx:base"], _ = _runner(_surrounded(_nothing(feeds, opset)), feeds, threads)
    return made


def _torch(value: Any) -> Any:
    if isinstance(value, np.ndarray):
        return torch.from_numpy(np.array(value))
    if isinstance(value, tuple) and value and isinstance(value[0], np.ndarray):
        return tuple(_torch(item) for item in value)
    return value


def _limit(row: Row, feeds: Mapping[str, Any], results: Sequence[Any]) -> Callable[[], object]:
    if row.limit is not None:
        batch, m, k, n = row.limit
        left, right, product = torch.rand(batch, m, k), torch.rand(batch, k, n), torch.empty(batch, m, n)
        return lambda: torch.bmm(left, right, out=product)
    size = (sum(a.nbytes for a in feeds.values()) + sum(a.nbytes for a in results)) // 2
    source, target = (
        torch.zeros(max(size, 1), dtype=torch.uint8),
        torch.zeros(max(size, 1), dtype=torch.uint8),
    )
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
    with ModelFile.from_proto(built.model) as file:
        done = decompose(file, Selection((placeholder,), frozenset({placeholder.pass_name()})))
        notes["form"] = done.regions[0].decomposition if done.regions else ""
        return file.hydrate(file.model)


def _exported(
    row: Row,
    function: Callable[..., Any],
    given: Mapping[str, Any],
    feeds: Mapping[str, Any],
    opset: int,
    *,
    dynamo: bool,
) -> onnx.ModelProto:
    """What an exporter makes of the operator alone."""

    class Alone(torch.nn.Module):
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
                    arguments[name] = left.pop(0)
                elif isinstance(value, tuple) and value and isinstance(value[0], torch.Tensor):
                    arguments[name] = tuple(left.pop(0) for _ in value)
            result = function(**arguments)
            return tuple(result) if isinstance(result, list) else result

    arguments = tuple(torch.from_numpy(np.array(array)) for array in feeds.values())
    logging.disable(logging.ERROR)
    try:
        with warnings.catch_warnings(), torch.no_grad():
            warnings.simplefilter("ignore")
            if dynamo:
                program = torch.onnx.export(
                    Alone().eval(), arguments, dynamo=True, opset_version=opset, verbose=False
                )
                assert program is not None
                return program.model_proto
            buffer = io.BytesIO()
            torch.onnx.export(Alone().eval(), arguments, buffer, dynamo=False, opset_version=opset)
            return onnx.load_from_string(buffer.getvalue())
    finally:
        logging.disable(logging.NOTSET)


def _nothing(feeds: Mapping[str, Any], opset: int) -> onnx.ModelProto:
    """No operator at all: what goes in comes out."""
    infos = [
        helper.make_tensor_value_info(name, int(helper.np_dtype_to_tensor_dtype(array.dtype)), array.shape)
        for name, array in feeds.items()
    ]
    model = helper.make_model(
        helper.make_graph([], "nothing", infos, infos), opset_imports=[helper.make_opsetid("", opset)]
    )
    model.ir_version = 8
    return model


def _surrounded(model: onnx.ModelProto, results: Sequence[Any] = ()) -> onnx.ModelProto:
    """Neighbours on either side: a Neg in front of each floating-point input, and one element taken of each output.

    ``results`` tell the dtypes of outputs that the model leaves open.
    """
    graph = model.graph
    fixed = {t.name for t in graph.initializer}
    for info in graph.input:
        if info.name not in fixed and info.type.tensor_type.elem_type in _FLOATS:
            graph.node.insert(0, helper.make_node("Neg", [f"{info.name}_given"], [info.name]))
            info.name = f"{info.name}_given"
    flat, first = np.array([-1], np.int64), np.array([0], np.int64)
    graph.initializer.append(numpy_helper.from_array(flat, "neighbour_flat"))
    graph.initializer.append(numpy_helper.from_array(first, "neighbour_first"))
    outputs = [(info.name, info.type.tensor_type.elem_type) for info in graph.output]
    for i, array in enumerate(results):
        outputs[i] = (outputs[i][0], int(helper.np_dtype_to_tensor_dtype(array.dtype)))
    del graph.output[:]
    for name, dtype in outputs:
        graph.node.append(helper.make_node("Reshape", [name, "neighbour_flat"], [f"{name}_flat"]))
        graph.node.append(helper.make_node("Gather", [f"{name}_flat", "neighbour_first"], [f"{name}_taken"]))
        graph.output.append(helper.make_tensor_value_info(f"{name}_taken", dtype, [1]))
    return model


def _check(model: onnx.ModelProto, inputs: Sequence[Any], expected: Sequence[Any]) -> None:
    """AssertionError where the model gives something else."""
    session = _session(model, 1)
    wanted = session.get_inputs()
    assert len(wanted) == len(inputs), f"the model has {len(wanted)} inputs, {len(inputs)} are given"
    found = session.run(None, {i.name: a for i, a in zip(wanted, inputs, strict=True)})
    for got, want in zip(found, expected, strict=False):
        assert got.shape == want.shape, f"wrong: shape {got.shape}, expected {want.shape}"
        scale = max(float(np.abs(want[np.isfinite(want)]).max(initial=0)), 1e-30)
        off = float(np.abs(got.astype(np.float64) - want).max(initial=0)) / scale
        assert off < 1e-3, f"wrong: off by {off:.2g} of the largest value"


def _session(model: onnx.ModelProto, threads: int, save: str = "") -> onnxruntime.InferenceSession:
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    options.inter_op_num_threads = 1
    options.log_severity_level = 4
    if save:
        options.optimized_model_filepath = save
    return onnxruntime.InferenceSession(
        model.SerializeToString(), options, providers=["CPUExecutionProvider"]
    )


def _runner(
    model: onnx.ModelProto, feeds: Mapping[str, Any], threads: int
) -> tuple[Callable[[], object], str]:
    """A call that runs the model, its inputs and outputs bound once, and its digest once optimised."""
    with tempfile.TemporaryDirectory() as folder:
        session = _session(model, threads, f"{folder}/optimised.onnx")
        digest = _digest(onnx.load(f"{folder}/optimised.onnx"))
    binding = session.io_binding()
    for info, array in zip(session.get_inputs(), feeds.values(), strict=True):
        # What the Neg in front makes of it is the case's own value: operators such as NMS do as much as it has them do.
        array = -array if info.name.endswith("_given") else array
        value = onnxruntime.OrtValue.ortvalue_from_numpy(np.ascontiguousarray(array).reshape(array.shape))
        binding.bind_ortvalue_input(info.name, value)
    for info in session.get_outputs():
        dtype = _NUMPY[info.type]
        value = onnxruntime.OrtValue.ortvalue_from_shape_and_type([1], dtype)
        binding.bind_ortvalue_output(info.name, value)
    return lambda: session.run_with_iobinding(binding), digest


def _told(node: onnx.NodeProto, model: onnx.ModelProto) -> list[onnx.AttributeProto]:
    """The attributes that say something: a default that is written out means what its absence means."""
    versions = {i.domain: i.version for i in model.opset_import}
    if node.domain or not onnx.defs.has(node.op_type, versions[""]):
        return list(node.attribute)
    defaults = onnx.defs.get_schema(node.op_type, versions[""]).attributes
    return [
        a
        for a in node.attribute
        if a.name not in defaults
        or onnx.helper.get_attribute_value(a) != _default(defaults[a.name].default_value)
    ]


def _default(value: onnx.AttributeProto) -> Any:
    return onnx.helper.get_attribute_value(value) if value.type else None


def _digest(model: onnx.ModelProto) -> str:
    """The operators with their attributes, constants and edges, whatever anything is called."""
    names = {
        t.name: hashlib.sha256(numpy_helper.to_array(t).tobytes() + bytes([t.data_type, *t.dims])).hexdigest()
        if max(t.dims, default=0) < 256
        else f"weights {t.data_type} {list(t.dims)}"
        for t in model.graph.initializer
    }
    names |= {info.name: f"input {i}" for i, info in enumerate(model.graph.input)}
    told = []
    for number, node in enumerate(model.graph.node):
        names |= {output: f"{number}.{i}" for i, output in enumerate(node.output) if output}
        attributes = sorted(a.SerializeToString(deterministic=True) for a in _told(node, model))
        told.append((node.domain, node.op_type, [names.get(name, name) for name in node.input], attributes))
    return repr(told)
