"""Faults of runtimes with the passes of passes/sampling/; see the package's docstring."""

from tests.runtimes.faults import Fault

FAULTS: tuple[Fault, ...] = ()
