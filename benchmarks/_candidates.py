"""The same operator as PyTorch runs it, as exporters write it and as the pass writes it.

ONNX operators are measured inside a model, behind a Neg of each input and before an operator that takes one element
of each output, and the time of these neighbours alone is taken off: at a model's boundary a Reshape costs a copy, and
an optimiser may do there what it cannot do inside.
"""

from __future__ import annotations

import copy
import tempfile
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx
import onnxruntime
import torch
from _peers import difference, expected_of, exported, invalid, special_feeds
from _same import digest, with_plain_axes
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
class Prepared:
    """The models of one row, exported and checked once; ``ours`` is one of them."""

    row: Row
    function: Callable[..., Any]
    given: Mapping[str, Any]
    feeds: Mapping[str, Any]
    expected: Sequence[Any]
    models: dict[str, onnx.ModelProto] = field(default_factory=dict)
    #: Which form ours is.
    form: str = ""
    #: Why there is no model of that name.
    missing: dict[str, str] = field(default_factory=dict)
    #: Why a model is no peer: it is no ONNX of this opset, or wrong where ours is right.
    left_out: dict[str, str] = field(default_factory=dict)


@dataclass
class Candidates:
    """Everything to be timed for one row; the key of ONNX models starts with ``onnx:``."""

    calls: dict[str, Callable[[], object]] = field(default_factory=dict)
    #: What onnxruntime makes of each ONNX model, to see whether two are the same.
    optimised: dict[str, str] = field(default_factory=dict)


def prepared(row: Row, placeholder: Placeholder, *, opset: int) -> Prepared:
    """Each exporter's form, and ours; those that are wrong on the row's own inputs are missing."""
    built = build(placeholder, row.case, dtype="float32", opset=opset, symbolic=False, place="graph")
    given = {name: _torch(value) for name, value in built.arguments.items()}
    function = row.torch or placeholder.reference
    feeds = {name: array for name, array in built.feeds.items() if name not in row.constants}
    made = Prepared(row, function, given, feeds, expected_of(row, function, given, feeds))
    makers: dict[str, Callable[[], onnx.ModelProto]] = {"ours": lambda: _ours(made, placeholder, opset)}
    if row.exported:
        makers["legacy"] = lambda: exported(row, function, given, feeds, opset, dynamo=False)
        if opset >= 18:
            makers["dynamo"] = lambda: exported(row, function, given, feeds, opset, dynamo=True)
    for name, peer in row.peers.items():
        makers[name] = lambda peer=peer: peer(opset)  # type: ignore[misc]
    for name, make in makers.items():
        try:
            model = with_plain_axes(make())
            wrong = difference(_run(_session(model, 1), feeds), made.expected)
            if wrong is not None:
                raise AssertionError(f"wrong: {wrong}")
        except Exception as error:
            made.missing[name] = " ".join(f"{type(error).__name__}: {error}".split())[:200]
            if name == "ours":
                raise
            continue
        made.models[name] = model
    for name, model in made.models.items():
        if name != "ours" and (reason := invalid(model)) is not None:
            made.left_out[name] = reason
    _judge(made)
    return made


def _judge(made: Prepared) -> None:
    """Leave out what is wrong for special values; those that ours has no answer to either (few) say nothing."""
    sessions = {name: _session(model, 1) for name, model in made.models.items()}
    for kind, feeds in special_feeds(made.row, made.feeds):
        if len(sessions) < 2:
            return
        expected = expected_of(made.row, made.function, made.given, feeds)
        if difference(_run(sessions["ours"], feeds), expected) is not None:
            continue
        for name, session in sessions.items():
            if name in made.left_out:
                continue
            wrong = difference(_run(session, feeds), expected)
            if wrong is not None:
                made.left_out[name] = f"wrong for {kind}: {wrong}"


def candidates(made: Prepared, *, threads: int) -> Candidates:
    """PyTorch, the limit, the neighbours alone, ours, and each other form once."""
    timed = Candidates()

    def eager() -> object:
        with torch.no_grad():
            return made.function(**made.given)

    timed.calls["torch"] = eager
    timed.calls["limit"] = _limit(made)
    for name, model in made.models.items():
        call, text = _runner(_surrounded(copy.deepcopy(model), made.expected), made.feeds, threads)
        again = next((other for other, found in timed.optimised.items() if found == text), "")
        timed.optimised[name] = text
        # To take the better of two that are one and the same would be to take the luckier.
        if not again or again == "ours" or again in made.left_out or name in made.left_out:
            timed.calls[f"onnx:{name}"] = call
    opset = next(i.version for i in made.models["ours"].opset_import if not i.domain)
    timed.calls["onnx:base"], _ = _runner(_surrounded(_nothing(made.feeds, opset)), made.feeds, threads)
    return timed


def _torch(value: Any) -> Any:
    if isinstance(value, np.ndarray):
        return torch.from_numpy(np.array(value))
    if isinstance(value, tuple) and value and isinstance(value[0], np.ndarray):
        return tuple(_torch(item) for item in value)
    return value


def _limit(made: Prepared) -> Callable[[], object]:
    if made.row.limit is not None:
        batch, m, k, n = made.row.limit
        left, right, product = torch.rand(batch, m, k), torch.rand(batch, k, n), torch.empty(batch, m, n)
        return lambda: torch.bmm(left, right, out=product)
    size = (sum(a.nbytes for a in made.feeds.values()) + sum(a.nbytes for a in made.expected)) // 2
    source, target = (
        torch.zeros(max(size, 1), dtype=torch.uint8),
        torch.zeros(max(size, 1), dtype=torch.uint8),
    )
    return lambda: target.copy_(source)


def _ours(made: Prepared, placeholder: Placeholder, opset: int) -> onnx.ModelProto:
    row, outputs = made.row, len(made.expected)
    built = build(
        placeholder, row.case, dtype="float32", opset=opset, symbolic=False, place="graph", outputs=outputs
    )
    graph = built.model.graph
    for info in [i for i in graph.input if i.name in row.constants]:
        graph.input.remove(info)
        graph.initializer.append(numpy_helper.from_array(np.asarray(built.feeds[info.name]), info.name))
    with ModelFile.from_proto(built.model) as file:
        done = decompose(file, Selection((placeholder,), frozenset({placeholder.pass_name()})))
        made.form = done.regions[0].decomposition if done.regions else ""
        return file.hydrate(file.model)


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


def _run(session: onnxruntime.InferenceSession, feeds: Mapping[str, Any]) -> list[Any]:
    """Inputs by their order: exporters name them as they like."""
    wanted = session.get_inputs()
    assert len(wanted) == len(feeds), f"the model has {len(wanted)} inputs, {len(feeds)} are given"
    found: list[Any] = session.run(
        None, {i.name: array for i, array in zip(wanted, feeds.values(), strict=True)}
    )
    return found


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
        text = digest(onnx.load(f"{folder}/optimised.onnx"))
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
    return lambda: session.run_with_iobinding(binding), text
