"""What the installed onnxruntime takes: asked of itself, by giving it something to load."""

from __future__ import annotations

from typing import TYPE_CHECKING

from onnx import ModelProto, TensorProto, helper

from rewriter.errors import VerificationError

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from rewriter.storage import ModelFile

#: Old enough for any runtime, to ask after one thing at a time.
_OLD_IR, _OLD_OPSET = 4, 11


def version() -> str:
    import onnxruntime

    return str(onnxruntime.__version__)


def refuses_opset(domain: str, opset: int) -> str | None:
    """Why onnxruntime does not take ``opset`` of a standard domain; None where it does."""
    imports = {"": _OLD_OPSET, domain: opset}
    return _refuses(_trivial(_OLD_IR, imports))


def refuses_ir(ir_version: int) -> str | None:
    """Why onnxruntime does not take the IR version; None where it does."""
    return _refuses(_trivial(ir_version, {"": _OLD_OPSET}))


def refuses_model(file: ModelFile, libraries: Sequence[Path]) -> str | None:
    """Why onnxruntime does not load the model of ``file`` with these libraries, and no others; None where it does."""
    from rewriter.execution.session import Session

    try:
        Session(file, file.model, libraries=libraries)
    except VerificationError as error:
        return error.what
    return None


def _trivial(ir_version: int, imports: dict[str, int]) -> ModelProto:
    kind = helper.make_tensor_type_proto(TensorProto.FLOAT, [1])
    graph = helper.make_graph(
        [helper.make_node("Relu", ["x"], ["y"])],
        "g",
        [helper.make_value_info("x", kind)],
        [helper.make_value_info("y", kind)],
    )
    opsets = [helper.make_opsetid(domain, number) for domain, number in imports.items()]
    return helper.make_model(graph, ir_version=ir_version, opset_imports=opsets)


def _refuses(model: ModelProto) -> str | None:
    from rewriter.storage import ModelFile

    with ModelFile.from_proto(model) as file:
        return refuses_model(file, ())
