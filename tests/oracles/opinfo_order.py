"""OpInfo's entries for the passes of passes/order/; see the package's docstring."""

from __future__ import annotations

from tests.oracles.table import Row, Unrun

ROWS: tuple[Row, ...] = (
    Row("sort", ("sort", "msort")),
    Row("cummax", ("cummax",)),
    Row("cummin", ("cummin",)),
    Row("cumprod", ("cumprod",)),
    Row("logcumsumexp", ("logcumsumexp",)),
    Row("searchsorted", ("searchsorted",)),
    Row("bucketize", ("bucketize",)),
    Row("median", ("median",)),
    Row("nanmedian", ("nanmedian",)),
    Row("kthvalue", ("kthvalue",)),
    Row("mode", ("mode",)),
    Row("prod", ("prod",)),
    Row("masked_select", ("masked_select",)),
)

UNRUN: tuple[Unrun, ...] = ()
