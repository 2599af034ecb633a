"""Rows for the passes of passes/attention/; see the package's docstring."""

from operator_cases import Row

ROWS: tuple[Row, ...] = ()
