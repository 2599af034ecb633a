"""ModelFile: a model without its weights in memory."""

from __future__ import annotations

import os
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from google.protobuf.message import DecodeError, EncodeError
from onnx import ModelProto, TensorProto

from rewriter.errors import ModelReadError, ModelWriteError
from rewriter.storage import arrays, memory, stub
from rewriter.storage.data_files import external_locations
from rewriter.storage.dtypes import element_bits, element_count
from rewriter.storage.external import ExternalData, RawLocation, is_external
from rewriter.storage.mapped import MappedFile
from rewriter.storage.payload import RawPayload
from rewriter.storage.plan import Message, plan
from rewriter.storage.save import HARD_LIMIT, SaveResult, copy, save
from rewriter.storage.sink import MemorySink
from rewriter.storage.skeleton import scan
from rewriter.storage.sniff import describe
from rewriter.storage.wire import IrregularError, WireError

if TYPE_CHECKING:
    from types import TracebackType

    import numpy as np

    from rewriter.storage.payload import Payload

#: Payloads up to this many bytes stay in the skeleton: constants that passes and shape inference want to see.
THRESHOLD = 1024


class ModelFile:
    """A model whose large tensors stay where they are, in the file or in the caller's message.

    ``model`` is an ordinary ModelProto to be edited in place; a withheld tensor in it is a *stub*, with everything but
    its elements.  Stubs can be copied, moved and renamed at will, into other models too, as long as those are saved by
    this object.  Use it as a context manager: it holds the file open.
    """

    def __init__(
        self,
        *,
        path: Path | None,
        model: ModelProto,
        token: str,
        payloads: list[Payload],
        file: MappedFile | None,
        external: ExternalData,
    ) -> None:
        self.path = path
        self.model = model
        self.file = file
        self.external = external
        self._token = token
        self._payloads = payloads
        self._locations: set[str] = set()

    @classmethod
    def open(cls, path: str | os.PathLike[str], *, threshold: int = THRESHOLD) -> ModelFile:
        """Open a model file.  Raises ModelReadError, and ExternalDataError where its data files are not in order."""
        path = Path(os.path.abspath(path))  # noqa: PTH100  (resolve() would follow the link that data is looked up beside)
        file = _open(path)
        external = ExternalData(path.parent, Path(os.path.realpath(path)).parent)
        try:
            model, content, token, payloads = _read(file, path, threshold)
            opened = cls(path=path, model=model, token=token, payloads=payloads, file=file, external=external)
            opened._validate_external(content)
        except BaseException:
            external.close()
            file.close()
            raise
        return opened

    @classmethod
    def from_proto(cls, model: ModelProto, *, base: str | os.PathLike[str] | None = None) -> ModelFile:
        """A model in memory, also one above 2 GiB.

        ``model`` is neither changed nor copied as a whole: its large tensors are read from it when needed, so it must
        stay as it is meanwhile.  ``base`` is the folder of its external data.
        """
        if not model.HasField("graph"):
            raise ModelReadError("the model has no graph", remedy="pass a complete ModelProto")
        external = ExternalData(None if base is None else Path(os.path.abspath(base)))  # noqa: PTH100
        skeleton, content, token, payloads = _withhold(model, THRESHOLD)
        opened = cls(path=None, model=skeleton, token=token, payloads=payloads, file=None, external=external)
        opened._validate_external(content)
        return opened

    def __enter__(self) -> ModelFile:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Let go of the files.  Arrays that were handed out stay valid."""
        self.external.close()
        if self.file is not None:
            self.file.close()

    @cached_property
    def size(self) -> int:
        """Bytes of the model file; for a model in memory, of its serialised form without external data."""
        if self.file is not None:
            return self.file.size
        return self._plan(self.model).length()

    @property
    def identity(self) -> dict[str, tuple[int, int, int, int]]:
        """What tells the model's files, as they were opened, from others; two processes can compare it."""
        own = {} if self.file is None else {"": self.file.identity}
        return own | self.external.identities()

    def is_withheld(self, tensor: TensorProto) -> bool:
        """Whether ``tensor`` is a stub, or a copy of one, of this file."""
        return self._payload(tensor) is not None

    def nbytes(self, tensor: TensorProto) -> int:
        """Bytes of the elements in raw form (of strings, the bytes of the strings), wherever they are."""
        payload = self._payload(tensor)
        if payload is not None:
            raw = arrays.raw_range(tensor, payload)
            if raw is not None:
                return raw[1]
        elif is_external(tensor):
            return self.external.locate(tensor)[1].length
        elif tensor.HasField("raw_data"):
            return len(tensor.raw_data)
        bits = element_bits(tensor.data_type)
        if bits:
            return (element_count(tensor, tensor.name) * bits + 7) // 8
        pieces = [tensor] if payload is None else payload.pieces()
        return sum(len(text) for piece in pieces for text in piece.string_data)

    def array(self, tensor: TensorProto) -> np.ndarray[Any, Any]:
        """The elements, read-only; a view of the mapped file where they are raw and aligned, otherwise a copy.

        Types that numpy lacks are those of ml_dtypes; strings are an object array of ``str`` (of ``bytes`` where they
        are not UTF-8).  Raises ModelReadError where elements, type and dims do not agree.
        """
        payload = self._payload(tensor)
        if payload is not None:
            raw = arrays.raw_range(tensor, payload)
            if raw is not None and self.file is not None:
                return arrays.from_raw(tensor, self.file.buffer, *raw)
            return arrays.from_message(arrays.merge(tensor, list(payload.pieces())))
        if is_external(tensor):
            file, place = self.external.locate(tensor)
            return arrays.from_raw(tensor, file.buffer, place.offset, place.length)
        return arrays.from_message(tensor)

    def raw(self, tensor: TensorProto) -> RawLocation | None:
        """Where the elements stand as raw little-endian bytes in a file; None where they do not."""
        payload = self._payload(tensor)
        if payload is None:
            return self.external.locate(tensor)[1] if is_external(tensor) else None
        raw = arrays.raw_range(tensor, payload)
        return None if raw is None or self.file is None else RawLocation(self.file.path, *raw)

    def hydrate(self, model: ModelProto) -> ModelProto:
        """A full copy of ``model`` with every payload inline.  Raises ModelWriteError above protobuf's 2 GiB."""
        root = self._plan(model)
        for part in root.tensors():
            if part.payload is None:
                file, place = self.external.locate(part.header)
                part.embed(RawPayload(file, place.offset, place.length))
        root.forget_lengths()
        if root.length() > HARD_LIMIT:
            raise ModelWriteError(
                f"the model with its weights inline has {root.length()} bytes, above protobuf's limit of 2 GiB",
                remedy="save it to a file instead; weights then go to a data file",
            )
        sink = MemorySink()
        root.write(sink)
        full: ModelProto = ModelProto.FromString(sink.getvalue())
        return full

    def save(self, target: str | os.PathLike[str], model: ModelProto | None = None) -> SaveResult:
        """Write ``model`` (``self.model``, or any model made of copies of its parts) to ``target``, atomically.

        Weights stay inline where they were inline, unless the file would pass 1.9 GB.  External data, and what was too
        large, goes to ``<target>.data``; saved over the model that was opened, external data stays where it is.
        Raises ModelWriteError.
        """
        return save(self, self._plan(self.model if model is None else model), Path(os.path.abspath(target)))  # noqa: PTH100

    def copy_to(self, target: str | os.PathLike[str]) -> SaveResult:
        """The file as it was opened, byte for byte, with its data files under the same relative names.

        Where these would be the input's own or are taken by others, data goes to ``<target>.data`` instead, and only
        the references to it change.
        """
        target = Path(os.path.abspath(target))  # noqa: PTH100
        if self.file is None:
            return self.save(target)
        copied = copy(self, self.file, self._locations, target)
        if copied is not None:
            return copied
        with ModelFile.open(self.path or self.file.path) as again:
            return again.save(target)

    def _payload(self, tensor: TensorProto) -> Payload | None:
        number = stub.number_of(tensor, self._token)
        return None if number is None or number >= len(self._payloads) else self._payloads[number]

    def _plan(self, model: ModelProto) -> Message:
        if self.file is not None:
            self.file.check_open()
        try:
            content = model.SerializeToString()
        except (EncodeError, ValueError):  # above 2 GiB: large tensors were added in memory
            model, content = self._withhold_more(model)
        return plan(content, self._token, self._payloads)

    def _withhold_more(self, model: ModelProto) -> tuple[ModelProto, bytes]:
        smaller, taken = memory.strip(model, THRESHOLD)
        assert isinstance(smaller, ModelProto)
        for tensor, payload in taken:
            stub.mark(tensor, self._token, len(self._payloads))
            self._payloads.append(payload)
        try:
            return smaller, smaller.SerializeToString()
        except (EncodeError, ValueError):
            raise ModelWriteError(
                "the model is above protobuf's limit of 2 GiB, and not because of its tensors",
                remedy="look for very large attributes or metadata",
            ) from None

    def _validate_external(self, content: bytes) -> None:
        """Look at every external tensor once, so that a missing file is said before any work is done."""
        if content.count(b"location") <= len(self._payloads):  # each stub says it once
            return
        # Not as it was read: there the mark of external data may be encoded so as not to be found.
        content = self.model.SerializeToString()
        root = plan(content, self._token, self._payloads)
        self._locations = external_locations(content, root)
        for part in root.tensors():
            if part.payload is None:
                self.external.locate(part.header)


def _open(path: Path) -> MappedFile:
    try:
        return MappedFile.open(path)
    except FileNotFoundError:
        raise ModelReadError("the file does not exist", where=str(path), remedy="check the path") from None
    except (OSError, ValueError) as error:
        what = getattr(error, "strerror", None) or str(error)
        raise ModelReadError(
            f"the file cannot be read: {what}", where=str(path), remedy="name a readable .onnx file"
        ) from None


def _read(file: MappedFile, path: Path, threshold: int) -> tuple[ModelProto, bytes, str, list[Payload]]:
    """(skeleton, its serialised form, token, payloads)."""
    if file.size == 0:
        raise ModelReadError(
            "the file is empty", where=str(path), remedy="the export or download did not finish; repeat it"
        )
    content: bytes
    payloads: list[Payload]
    try:
        try:
            skeleton = scan(file, file.size, threshold)
        except IrregularError:
            if file.size > HARD_LIMIT:
                raise WireError("a message field occurs twice, in a file above 2 GiB") from None
            whole = ModelProto.FromString(bytes(file.buffer[0 : file.size]))
            model, content, token, payloads = _withhold(whole, threshold)
        else:
            content, token, payloads = skeleton.content, skeleton.token, list(skeleton.payloads)
            model = ModelProto.FromString(content)
    except (WireError, DecodeError) as error:
        raise _not_onnx(file, path, str(error)) from None
    if not model.HasField("graph"):
        raise _not_onnx(file, path, None)
    return model, content, token, payloads


def _withhold(model: ModelProto, threshold: int) -> tuple[ModelProto, bytes, str, list[Payload]]:
    skeleton, taken = memory.strip(model, threshold)
    assert isinstance(skeleton, ModelProto)
    try:
        token = stub.token_for(skeleton.SerializeToString())
        for number, (tensor, _) in enumerate(taken):
            stub.mark(tensor, token, number)
        content = skeleton.SerializeToString()
    except (EncodeError, ValueError):
        raise ModelReadError(
            "the model is above protobuf's limit of 2 GiB, and not because of its tensors",
            remedy="look for very large attributes or metadata",
        ) from None
    return skeleton, content, token, [payload for _, payload in taken]


def _not_onnx(file: MappedFile, path: Path, error: str | None) -> ModelReadError:
    looks = describe(bytes(file.buffer[: min(file.size, 1024)]))
    if looks is not None:
        return ModelReadError(
            f"this is {looks}, not an ONNX model", where=str(path), remedy="name an .onnx file"
        )
    if error is None:
        return ModelReadError(
            "the file holds no graph, so it is no ONNX model (perhaps a single tensor or a TensorFlow graph)",
            where=str(path),
            remedy="name an .onnx file",
        )
    return ModelReadError(
        f"this is not an ONNX model, or a truncated or damaged one: {error}",
        where=str(path),
        remedy="export, copy or download it again",
    )
