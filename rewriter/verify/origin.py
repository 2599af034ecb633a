"""The model as it was exported, placeholders and all, kept to find out whether the export was right."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from onnx import ModelProto

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from rewriter.execution.values import Data
    from rewriter.graph.survey import Keep
    from rewriter.inputs.draw import Sample
    from rewriter.placeholder.registry import Selection
    from rewriter.standin.model import StandIn
    from rewriter.storage import ModelFile


@dataclass
class Origin:
    """A copy of the skeleton from before anything was replaced, and what its placeholders mean."""

    file: ModelFile
    model: ModelProto
    selection: Selection
    keep: Keep
    libraries: Mapping[str, Path]
    _stand_in: StandIn | None = field(default=None, repr=False)

    @classmethod
    def of(cls, file: ModelFile, selection: Selection, keep: Keep, libraries: Mapping[str, Path]) -> Origin:
        """Copies the skeleton of ``file``, not its weights."""
        model = ModelProto()
        model.CopyFrom(file.model)
        return cls(file, model, selection, keep, libraries)

    def run_on(self, sample: Sample) -> Callable[[Sequence[str]], Mapping[str, Data]]:
        """Gives named values of the main graph, the references standing in for the placeholders."""
        own = {value.name for value in self.model.graph.input}
        feeds = {name: value for name, value in sample.feeds.items() if name in own}

        def run(names: Sequence[str]) -> Mapping[str, Data]:
            if self._stand_in is None:
                from rewriter.standin.model import StandIn

                self._stand_in = StandIn(
                    self.file, self.model, self.selection, keep=self.keep, libraries=self.libraries
                )
            return self._stand_in.run(feeds, names)

        return run
