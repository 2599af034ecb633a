"""Faults of runtimes with the passes of passes/attention/; see the package's docstring."""

from tests.runtimes.faults import Fault

FAULTS: tuple[Fault, ...] = ()
