"""The process of the proof: everything that PyTorch and onnxruntime do for one run.

Requests come one after another: ``open`` says what model and passes it is about, ``equal`` compares a model before and
after simplification, ``verify`` is the proof itself.  Each has one answer: a value, an error of this package, or a
fault.
"""

from __future__ import annotations

import sys
import traceback
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from onnx import ModelProto

from rewriter.errors import ModelReadError, RewriteError
from rewriter.placeholder.registry import Selection
from rewriter.storage import ModelFile
from rewriter.verify.equality import equal
from rewriter.verify.proving import verify
from rewriter.verify.sides import own_operators, read_against
from rewriter.verify.transport import pack_answer, unpack
from rewriter.worker.activity import doing

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from rewriter.progress import Stage
    from rewriter.verify.options import VerifyOptions
    from rewriter.verify.origin import Origin
    from rewriter.worker.frames import Channel, Message


def serve(channel: Channel) -> None:
    """Answer requests until the parent closes the pipe."""
    worker = _Prover(channel)
    while (request := channel.receive()) is not None:
        try:
            channel.send({"answer": "value"}, [pack_answer(worker.answer(request))])
        except RewriteError as error:
            channel.send({"answer": "error"}, [pack_answer(error)])
        except Exception as error:  # noqa: BLE001  (the parent raises it)
            text = {"type": type(error).__name__, "text": str(error), "trace": traceback.format_exc()}
            channel.send({"answer": "fault", **text})
        sys.stdout.flush()
        if request.head["do"] == "open" and request.head["torch"]:
            _load_torch()


@dataclass
class _Prover:
    channel: Channel
    file: ModelFile | None = None
    selection: Selection | None = None
    options: VerifyOptions | None = None
    origin: Origin | None = None

    def answer(self, request: Message) -> Any:
        if request.head["do"] == "open":
            return self._open(request.head, request.parts)
        assert self.file is not None
        assert self.options is not None
        if request.head["do"] == "equal":
            before, after = map(ModelProto.FromString, request.parts)
            with doing(stage="the comparison before and after simplification"):
                return equal(self.file, before, after, self.options)
        assert self.selection is not None
        regions, deaths = unpack(request.parts[0], self.selection, self.file)
        rewritten = ModelProto.FromString(request.parts[1])
        delivered = ModelProto.FromString(request.parts[2]) if len(request.parts) > 2 else rewritten
        with doing(stage="the verification"):
            return verify(
                self.file,
                rewritten,
                delivered,
                regions,
                self.options,
                _Relay(self.channel),
                origin=self.origin,
                deaths=deaths,
            )

    def _open(self, head: Any, parts: Sequence[bytes]) -> None:
        selection = Selection.load(head["passes"], head["bind"])
        self.file = ModelFile.open(Path(head["model"]))
        if {name: tuple(value) for name, value in head["identity"].items()} != self.file.identity:
            raise ModelReadError(
                "the file was changed by another program while it was being read",
                where=head["model"],
                remedy="run again when nothing writes to it",
            )
        if head["derived"]:
            from rewriter.derive import extend

            selection = extend(selection, own_operators(head["operators"]))
        self.selection = selection
        options, keep = unpack(parts[0], selection, self.file)
        with doing(stage="loading what to compare with", engine="PyTorch"):
            self.options, self.origin = read_against(self.file, selection, keep, options)


def _load_torch() -> None:
    """While the parent is busy with the graph; where it is missing, the proof will say so."""
    try:
        import onnxruntime  # noqa: F401
        import torch  # noqa: F401
    except ImportError:
        pass


class _Relay:
    """Tells the parent what the proof is at."""

    def __init__(self, channel: Channel) -> None:
        self._channel = channel

    @contextmanager
    def stage(self, name: str, total: int | None = None) -> Iterator[Stage]:
        self._channel.send({"event": "stage", "name": name, "total": total})
        yield self

    def advance(self, steps: int = 1) -> None:
        self._channel.send({"event": "advance", "steps": steps})

    def note(self, text: str) -> None:
        self._channel.send({"event": "note", "text": text})
