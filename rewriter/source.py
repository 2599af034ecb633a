"""What a model can be read from: a path, a ``ModelProto``, or the program that ``torch.onnx.export`` returns."""

from __future__ import annotations

import os
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from rewriter.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from onnx import ModelProto

    from rewriter.storage import ModelFile

#: A program with more weights than this is saved to a folder: protobuf ends at 2 GB.
_INLINE_LIMIT = 1 << 30


@runtime_checkable
class Program(Protocol):
    """The part of ``torch.onnx.ONNXProgram`` that is used; torch itself is not imported for it."""

    @property
    def model_proto(self) -> ModelProto: ...

    def save(self, destination: str, *, external_data: bool | None = None) -> None: ...


Source = str | os.PathLike[str] | Any


def name_of(source: Source) -> str:
    """What a report calls it: a file's name without its folder."""
    if isinstance(source, (str, os.PathLike)):
        return Path(source).name
    return "model in memory"


def folders_of(*files: Source | None) -> list[Path]:
    """The folders of those that are paths: where a run happened, which no report tells."""
    return [Path(file).absolute().parent for file in files if isinstance(file, (str, os.PathLike))]


@contextmanager
def open_source(source: Source) -> Iterator[ModelFile]:
    """The model of ``source`` as a skeleton; ``source`` itself is never changed.

    Raises ModelReadError where the file cannot be read, or holds what ONNX does not allow.
    """
    from rewriter.graph.validate import validate

    with _opened(source) as file:
        validate(file.model)
        yield file


@contextmanager
def _opened(source: Source) -> Iterator[ModelFile]:
    from onnx import ModelProto

    from rewriter.storage import ModelFile
    from rewriter.storage.scratch import scratch_folder

    if isinstance(source, (str, os.PathLike)):
        with ModelFile.open(Path(source)) as file:
            yield file
    elif isinstance(source, ModelProto):
        with ModelFile.from_proto(source) as file:
            yield file
    elif isinstance(source, Program):
        if _weights(source) <= _INLINE_LIMIT:
            with ModelFile.from_proto(source.model_proto) as file:
                yield file
        else:
            with scratch_folder() as folder:
                path = folder / "model.onnx"
                source.save(str(path), external_data=True)
                with ModelFile.open(path) as file:
                    yield file
    else:
        raise UsageError(
            f"cannot read a model from {type(source).__name__}",
            remedy="give a path, an onnx.ModelProto, or what torch.onnx.export(dynamo=True) returns",
        )


def _weights(program: Program) -> int:
    """Bytes of the program's initializers, as far as it tells."""
    graph = getattr(getattr(program, "model", None), "graph", None)
    initializers = getattr(graph, "initializers", {})
    return sum(int(getattr(getattr(v, "const_value", None), "nbytes", 0)) for v in initializers.values())
