"""What the files of known faults are made of."""

from __future__ import annotations

import importlib
import pkgutil
from dataclasses import dataclass
from typing import TYPE_CHECKING

import tests.runtimes

if TYPE_CHECKING:
    from tests.runtimes.drive import Result, Trial


@dataclass(frozen=True)
class Fault:
    """A runtime's own fault with some cases of a pass."""

    runtime: str
    pass_name: str
    result: Result
    reason: str
    #: A part of the case's text; "" covers every case.
    cases: str = ""
    form: str | None = None
    #: "static", "symbolic" or both.
    sizes: str | None = None
    #: Whether it depends on more than the model and its inputs, so that the right result may be seen as well.
    sometimes: bool = False

    def covers(self, runtime: str, trial: Trial) -> bool:
        return (
            runtime == self.runtime
            and trial.variant.placeholder.pass_name() == self.pass_name
            and self.cases in repr(trial.variant.case)
            and self.form in (None, trial.form)
            and self.sizes in (None, trial.sizes)
        )


def known_faults() -> list[Fault]:
    """Those of every ``faults_<group>.py``."""
    found: list[Fault] = []
    for module in pkgutil.iter_modules(tests.runtimes.__path__):
        if module.name.startswith("faults_"):
            found += importlib.import_module(f"tests.runtimes.{module.name}").FAULTS
    return found
