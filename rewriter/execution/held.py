"""Values between the sessions of one run: as onnxruntime holds them, and as numpy arrays only where somebody looks.

What one session gives goes into the next as it is, so nothing is copied on the way, and the formats that numpy lacks,
sequences and optionals pass as well.  onnxruntime's Python interface makes no sequences and no strings and reads no
sequences; models of one operator do that for it.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
from onnx import ModelProto, TensorProto, TypeProto, ValueInfoProto, helper

from rewriter.execution.values import element_type, from_ort_value, ort_value

if TYPE_CHECKING:
    from collections.abc import Sequence

    from onnx import NodeProto

    from rewriter.execution.numbers import Array
    from rewriter.execution.values import Data

_OPSET = 17


@dataclass
class Held:
    """One value, in either form or both.

    ``kind`` is its type where the value does not say it: of sequences and optionals, which may be empty.
    """

    data: Data = None
    ort: Any = None
    kind: TypeProto | None = None
    #: Whether ``data`` is the value; None is one, too.
    has_data: bool = False

    @property
    def is_absent(self) -> bool:
        """Whether it is an optional without a value."""
        return self.data is None if self.has_data else not self.ort.has_value()


@dataclass
class Values:
    """Turns values from one form into the other; keeps the sessions that this takes."""

    _sessions: dict[tuple[Any, ...], Any] = field(default_factory=dict)

    def of(self, data: Data, kind: TypeProto | None = None) -> Held:
        """A value from outside: an array, a sequence of them, or None."""
        return Held(data, kind=kind, has_data=True)

    def of_ort(self, value: Any, kind: TypeProto | None = None) -> Held:
        return Held(ort=value, kind=kind)

    def data(self, held: Held) -> Data:
        """The value as an array, as a list of them, or None."""
        if not held.has_data:
            held.data = self._read(held.ort)
            held.has_data = True
        return held.data

    def array(self, held: Held) -> Array:
        return np.asarray(self.data(held))

    def ort(self, held: Held) -> Any:
        """The value as an OrtValue; not for one that is absent."""
        if held.ort is None:
            held.ort = self._make(held.data, held.kind)
        return held.ort

    def type_of(self, held: Held) -> TypeProto:
        """Element type and rank of a tensor; the type of anything else."""
        if held.kind is not None and held.kind.WhichOneof("value") != "tensor_type":
            return held.kind
        if held.has_data:
            if held.data is None or isinstance(held.data, (list, tuple)):
                return _sequence(TensorProto.FLOAT if not held.data else element_type(held.data[0]))
            return _tensor(element_type(held.data), np.ndim(held.data))
        if not held.ort.is_tensor():
            return parse_type(held.ort.data_type())
        return _tensor(held.ort.element_type(), len(held.ort.shape()))

    # --- the other form ---------------------------------------------------------------------------------------

    def _make(self, data: Data, kind: TypeProto | None) -> Any:
        if isinstance(data, (list, tuple)):
            return self._sequence(data, kind)
        array = np.require(data, requirements=["A", "C"])
        dtype = element_type(array)
        return self._strings(array) if dtype == TensorProto.STRING else ort_value(array, dtype)

    def _sequence(self, items: Sequence[Array], kind: TypeProto | None) -> Any:
        if not items:
            dtype = _element(kind)
            node = helper.make_node("SequenceEmpty", [], ["s"], dtype=dtype)
            return self._run(("empty", dtype), [node], {}, "s")
        names = [f"x{i}" for i in range(len(items))]
        held = {name: self._make(item, None) for name, item in zip(names, items, strict=True)}
        dtype = element_type(np.asarray(items[0]))
        node = helper.make_node("SequenceConstruct", names, ["s"])
        return self._run(("sequence", dtype, len(items)), [node], held, "s", _tensor(dtype))

    def _strings(self, array: Array) -> Any:
        texts = [_text(item) for item in array.ravel()]
        tensor = TensorProto(data_type=TensorProto.STRING, dims=array.shape, string_data=texts)
        return self._run(None, [helper.make_node("Constant", [], ["s"], value=tensor)], {}, "s")

    def _read(self, value: Any) -> Data:
        if not value.has_value() or value.is_tensor():
            return from_ort_value(value)
        kind = parse_type(value.data_type())
        length = self._run(
            ("length", _element(kind)),
            [helper.make_node("SequenceLength", ["s"], ["n"])],
            {"s": value},
            "n",
            kind,
        )
        at = helper.make_node("SequenceAt", ["s", "i"], ["x"])
        return [
            from_ort_value(
                self._run(
                    ("at", _element(kind)),
                    [at],
                    {"s": value, "i": ort_value(np.asarray(i), TensorProto.INT64)},
                    "x",
                    kind,
                )
            )
            for i in range(int(length.numpy()))
        ]

    def _run(
        self,
        key: tuple[Any, ...] | None,
        nodes: list[NodeProto],
        feeds: dict[str, Any],
        name: str,
        kind: TypeProto | None = None,
    ) -> Any:
        """The value ``name`` that ``nodes`` compute; all inputs are of type ``kind``, but the position ``i``."""
        session = None if key is None else self._sessions.get(key)
        if session is None:
            import onnxruntime

            infos = [
                ValueInfoProto(name=n, type=_tensor(TensorProto.INT64) if n == "i" else kind) for n in feeds
            ]
            graph = helper.make_graph(nodes, "convert", infos, [ValueInfoProto(name=name)])
            model: ModelProto = helper.make_model(
                graph, opset_imports=[helper.make_opsetid("", _OPSET)], ir_version=8
            )
            options = onnxruntime.SessionOptions()
            options.log_severity_level = 4
            options.intra_op_num_threads = 1
            session = onnxruntime.InferenceSession(
                model.SerializeToString(), options, providers=["CPUExecutionProvider"]
            )
            if key is not None:
                self._sessions[key] = session
        return session.run_with_ort_values([name], feeds)[0]


def parse_type(text: str) -> TypeProto:
    """``"seq(tensor(float16))"`` as a type; ValueError for what is neither tensor, sequence nor optional."""
    found = re.fullmatch(r"(\w+)\((.*)\)", text)
    result = TypeProto()
    if found is None:
        raise ValueError(text)
    form, inner = found.groups()
    if form == "tensor":
        names = {"float": "FLOAT", "double": "DOUBLE"}
        result.tensor_type.elem_type = TensorProto.DataType.Value(names.get(inner, inner.upper()))
    elif form == "seq":
        result.sequence_type.elem_type.CopyFrom(parse_type(inner))
    elif form == "optional":
        result.optional_type.elem_type.CopyFrom(parse_type(inner))
    else:
        raise ValueError(text)
    return result


def known_type(text: str) -> TypeProto | None:
    """As :func:`parse_type`; None where that raises."""
    try:
        return parse_type(text)
    except ValueError:
        return None


def _tensor(dtype: int, rank: int | None = None) -> TypeProto:
    result = TypeProto()
    result.tensor_type.elem_type = dtype
    if rank is not None:
        result.tensor_type.shape.SetInParent()
        for _ in range(rank):
            result.tensor_type.shape.dim.add()
    return result


def _sequence(dtype: int) -> TypeProto:
    result = TypeProto()
    result.sequence_type.elem_type.CopyFrom(_tensor(dtype))
    return result


def _element(kind: TypeProto | None) -> int:
    """Element type of the tensors in a sequence, an optional or a tensor."""
    while kind is not None:
        form = kind.WhichOneof("value")
        if form == "tensor_type":
            return int(kind.tensor_type.elem_type)
        if form not in ("sequence_type", "optional_type"):
            break
        kind = getattr(kind, form).elem_type
    return int(TensorProto.FLOAT)


def _text(item: Any) -> bytes:
    return item if isinstance(item, bytes) else str(item).encode("utf-8", "surrogateescape")
