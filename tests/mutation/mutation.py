"""What a mutation of the source is, and what is expected of it."""

from __future__ import annotations

from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from onnx import parser

from rewriter.placeholder import Case, available
from tests.mutation.harness import OPSET, Subject
from tests.mutation.source import replaced

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from onnx import ModelProto


@dataclass(frozen=True)
class Mutation:
    """``old`` stands exactly once in ``file``, and ``new`` in its place for the run of a model.

    The model holds the operator of the pass ``of``: its first case, or ``case``, which has no values of its own.
    """

    name: str
    kind: str
    file: str
    old: str
    new: str
    of: str
    case: Case | None = None
    open: bool = False
    opset: int = OPSET
    #: Code of the error that a default run ends with.
    code: str = "mismatch"

    def __str__(self) -> str:
        return self.name.replace(" ", "-")

    @property
    def subject(self) -> Subject:
        found = next(p for p in available() if p.pass_name() == self.of)
        return Subject(found, 0, self.open, self.opset, given=self.case)

    @contextmanager
    def installed(self) -> Iterator[None]:
        with replaced(self.file, self.old, self.new):
            yield


@dataclass(frozen=True)
class Engine:
    """A mutation of what stands around the passes; ``model`` is the text of a graph, or makes one."""

    name: str
    kind: str
    file: str
    old: str
    new: str
    model: str | Callable[[], ModelProto]
    #: How a default run may end: codes of errors, or "refused", the unsimplified and right model being delivered.
    codes: tuple[str, ...] = ("mismatch",)
    #: Why the result is wrong where no values tell it.
    because: str = ""
    #: A second replacement: file, old and new text.
    also: tuple[str, str, str] | None = None
    opset: int = OPSET
    #: Whether the model comes from a file.
    from_file: bool = False

    def __str__(self) -> str:
        return self.name.replace(" ", "-")

    def build(self) -> ModelProto:
        if not isinstance(self.model, str):
            return self.model()
        head = f'<ir_version: 9, opset_import: ["": {self.opset}, "com.example": 1, "local": 1]>\n'
        return parser.parse_model(head + self.model)

    @contextmanager
    def installed(self) -> Iterator[None]:
        with ExitStack() as stack:
            stack.enter_context(replaced(self.file, self.old, self.new))
            if self.also is not None:
                stack.enter_context(replaced(*self.also))
            yield
