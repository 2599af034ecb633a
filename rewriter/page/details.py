"""What a report tells of the models themselves; collected only where somebody is to read it."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from datetime import date
from typing import TYPE_CHECKING, Any

from rewriter.declare.contents import contents_of
from rewriter.declare.runtimes import judge
from rewriter.domains import normal_domain
from rewriter.errors import Where
from rewriter.graph.scopes import function_scope, main_scope, qualified, text
from rewriter.page.sketch import Sketchbook
from rewriter.profiles import table
from rewriter.report import function_name
from rewriter.types import TensorType

if TYPE_CHECKING:
    from collections.abc import Iterable

    from onnx import ModelProto, ValueInfoProto

    from rewriter.errors import RewriteError
    from rewriter.graph.expanding import Region
    from rewriter.storage import ModelFile


@dataclass
class Details:
    """Follows one run, which calls the methods in their order; what was not reached stays None."""

    drawings: list[dict[str, Any]] | None = None
    #: How often each operator stands in the source, in what replacing made of it, and in what is delivered.
    operators: dict[str, dict[str, int]] = field(default_factory=dict)
    interface: dict[str, list[dict[str, str]]] | None = None
    runtimes: dict[str, Any] | None = None
    #: Of a run that failed, the node where it did.
    culprit: dict[str, Any] | None = None
    _sketchbook: Sketchbook | None = field(default=None, repr=False)

    def source(self, model: ModelProto) -> None:
        self.operators["source"] = count(model)
        self._sketchbook = Sketchbook(model)

    def rewritten(self, model: ModelProto, regions: Iterable[Region]) -> None:
        """``model`` holds the nodes of ``regions``."""
        assert self._sketchbook is not None
        self.operators["rewritten"] = count(model)
        self._sketchbook.turn(model, regions)
        self.drawings = self._sketchbook.drawings()

    def delivered(self, file: ModelFile, model: ModelProto) -> None:
        """``model`` is the skeleton of ``file`` that is to be written."""
        self.operators["delivered"] = count(model)
        initial = {tensor.name for tensor in model.graph.initializer}
        self.interface = {
            "inputs": [_value(value) for value in model.graph.input if value.name not in initial],
            "outputs": [_value(value) for value in model.graph.output],
        }
        contents = contents_of(file, model)
        opsets = {normal_domain(item.domain): item.version for item in model.opset_import}
        self.runtimes = {
            # In words: no figures in a report that look as if they told when the run was.
            "tried": date.fromisoformat(f"{table()['date']}-01").strftime("%B %Y"),
            "source": table()["source"],
            "functions": {function_name(key): times for key, times in sorted(contents.functions.items())},
            "judged": [
                {**vars(item), "reasons": list(item.reasons)}
                for item in judge(contents, model.ir_version, opsets)
            ],
        }

    def failed(self, error: RewriteError) -> None:
        """Draw the node that ``error`` is about, where it names one."""
        blame = getattr(error, "blame", None)
        where = (None if blame is None else blame.where) or error.where
        if self._sketchbook is not None and isinstance(where, Where):
            self.culprit = self._sketchbook.at(where)

    def to_dict(self) -> dict[str, Any]:
        return {
            "drawings": self.drawings,
            "operators": self.operators or None,
            "interface": self.interface,
            "runtimes": self.runtimes,
            "culprit": self.culprit,
        }


def count(model: ModelProto) -> dict[str, int]:
    """How often each operator stands in ``model``, bodies and functions included."""
    found: Counter[str] = Counter()
    for root in (main_scope(model), *map(function_scope, model.functions)):
        for scope in root.walk():
            found.update(qualified(node) for node in scope.graph.node)
    return dict(sorted(found.items()))


def _value(value: ValueInfoProto) -> dict[str, str]:
    kind = TensorType.from_proto(value.type)
    other = (value.type.WhichOneof("value") or "of unknown type").removesuffix("_type")
    return {"name": text(value.name), "type": other if kind is None else str(kind)}
