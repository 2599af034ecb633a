"""Between the graph's named values and what a PyTorch call takes and gives."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from onnx import TensorProto, helper

from rewriter.errors import UsageError
from rewriter.execution.numbers import is_float
from rewriter.execution.values import from_torch, to_torch
from rewriter.types import dtype_name

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from onnx import TypeProto

    from rewriter.against.oracle import Interface
    from rewriter.execution.values import Data
    from rewriter.types import TensorType


def to_argument(value: Data, device: Any) -> Any:
    """A value of the graph as PyTorch takes it: a tensor on ``device``, a list of tensors, or None."""
    if value is None:
        return None
    if isinstance(value, (list, tuple)):
        return [to_argument(item, device) for item in value]
    return to_torch(np.asarray(value)).to(device)


def check_types(interface: Interface, label: str) -> None:
    """UsageError where PyTorch has no tensors of what an input that must be given is made of."""
    for name in interface.inputs:
        dtype = _element_type(interface.protos[name])
        try:
            to_torch(np.empty(0, helper.tensor_dtype_to_np_dtype(dtype)))
        except KeyError:
            continue  # no element type is declared
        except TypeError as error:
            what = "strings" if dtype == TensorProto.STRING else dtype_name(dtype)
            raise UsageError(
                f"--against {label}: the input '{name}' holds {what}, of which PyTorch has no tensors",
                remedy="record inputs and outputs, and give these (io.npz)",
            ) from error


def _element_type(proto: TypeProto) -> int:
    while (form := proto.WhichOneof("value")) in ("sequence_type", "optional_type"):
        proto = getattr(proto, form).elem_type
    return int(getattr(proto, form).elem_type) if form in ("tensor_type", "sparse_tensor_type") else 0


def to_data(leaf: Any, label: str, kind: TensorType | None = None) -> Data:
    """One result of a PyTorch call as a value of the graph; UsageError where a graph has no such values.

    A number has no element type of its own: it gets that of ``kind``, what the graph declares, where that fits.
    """
    import torch

    if isinstance(leaf, torch.Tensor):
        if leaf.is_complex() and is_float(_declared(kind)) and _declared(kind).kind != "c":
            leaf = torch.view_as_real(
                leaf.resolve_conj()
            )  # ONNX carries real and imaginary parts as a last axis
        return from_torch(leaf.to_dense() if leaf.layout != torch.strided else leaf)
    if isinstance(leaf, bool):
        return np.asarray(leaf)
    if isinstance(leaf, (int, torch.SymInt)):
        declared = _declared(kind)
        return np.asarray(int(leaf), declared if declared.kind in "iu" else np.int64)
    if isinstance(leaf, (float, torch.SymFloat)):
        declared = _declared(kind)
        return np.asarray(
            float(leaf), declared if is_float(declared) and declared.kind != "c" else np.float32
        )
    raise UsageError(
        f"--against {label} gives a {type(leaf).__name__}, which PyTorch does not take apart into tensors",
        remedy="name a factory whose module returns tensors, or tuples, lists and dicts of them",
    )


def _declared(kind: TensorType | None) -> Any:
    return np.dtype(object) if kind is None else helper.tensor_dtype_to_np_dtype(kind.dtype)


def by_output(result: Any, interface: Interface, label: str) -> dict[str, Data]:
    """What a call gave, by the names of the graph's outputs: flattened in order, None left out.

    UsageError where the numbers do not agree.
    """
    from torch.utils import _pytree as pytree

    leaves = [leaf for leaf in pytree.tree_leaves(result) if leaf is not None]
    names = list(interface.outputs)
    sequences = [name for name in names if interface.protos[name].WhichOneof("value") != "tensor_type"]
    if len(leaves) != len(names) and sequences and isinstance(result, (tuple, list)):
        leaves = _with_sequences(result, names, interface) or leaves
    if len(leaves) != len(names):
        raise UsageError(
            f"--against {label} gives {len(leaves)} results, the graph {len(names)}: {', '.join(names)}",
            remedy="name the very module that was exported, or a factory that makes it",
        )
    return {
        name: [to_data(item, label) for item in leaf]
        if isinstance(leaf, (list, tuple))
        else to_data(leaf, label, interface.outputs[name])
        for name, leaf in zip(names, leaves, strict=True)
    }


def _with_sequences(result: Sequence[Any], names: Sequence[str], interface: Interface) -> list[Any] | None:
    """Results of which some stay lists, as the graph's types say; None where they do not fit."""
    whole = [result] if len(names) == 1 else [item for item in result if item is not None]
    if len(whole) != len(names):
        return None
    for item, name in zip(whole, names, strict=True):
        if isinstance(item, (list, tuple)) != (interface.protos[name].WhichOneof("value") == "sequence_type"):
            return None
    return whole


def same_names(given: Sequence[str], own: Sequence[str]) -> bool:
    """Whether all the graph's inputs are called what the program calls its own."""
    return set(given) <= set(own)


def paired(
    feeds: Mapping[str, Data], inputs: Sequence[str], own: Sequence[str], device: Any
) -> dict[str, Any]:
    """The arguments by the program's own names: by name where all agree, else in order."""
    names = (
        {name: name for name in inputs} if same_names(inputs, own) else dict(zip(inputs, own, strict=True))
    )
    return {names[name]: to_argument(feeds[name], device) for name in inputs if name in feeds}
