"""OpInfo's entries for the passes of passes/order/; see the package's docstring."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tests.oracles.run import Result
from tests.oracles.table import Row, Unrun

if TYPE_CHECKING:
    from collections.abc import Mapping


def _sorted(sample: Any) -> Mapping[str, Any]:
    """The pass is stable always."""
    given = dict(zip(("dim", "descending"), sample.args, strict=False)) | sample.kwargs
    given.pop("stable", None)
    return {"x": sample.input} | given


def _first_axis(sample: Any) -> Mapping[str, Any]:
    return {"x": sample.input, "dim": 0}


def _numbered(sample: Any) -> Mapping[str, Any]:
    """Element types are numbers in a file."""
    from rewriter.derive.aten import number_of

    given = dict(zip(("dim", "keepdim"), sample.args, strict=False)) | sample.kwargs
    if given.get("dtype") is not None:
        given["dtype"] = number_of(given["dtype"])
    return {"x": sample.input} | given


def _searched(sample: Any) -> Mapping[str, Any]:
    """A number that is searched for is a tensor without axes."""
    import torch

    return {"sorted_sequence": sample.input, "values": torch.as_tensor(sample.args[0])} | sample.kwargs


ROWS: tuple[Row, ...] = (
    Row("sort", ("sort",), _sorted),
    Row("sort", ("msort",), _first_axis),
    Row("cummax", ("cummax",)),
    Row("cummin", ("cummin",)),
    Row("cumprod", ("cumprod",), _numbered),
    Row("logcumsumexp", ("logcumsumexp",)),
    Row("searchsorted", ("searchsorted",), _searched),
    Row("bucketize", ("bucketize",)),
    Row("median", ("median",)),
    Row("nanmedian", ("nanmedian",)),
    Row("kthvalue", ("kthvalue",)),
    Row("mode", ("mode",)),
    Row("prod", ("prod",), _numbered),
    Row("masked_select", ("masked_select",)),
)

UNRUN: tuple[Unrun, ...] = (
    Unrun(
        "sort",
        "sort",
        Result.DIFFERS,
        "thousands of equal numbers, whose order PyTorch's sort leaves open without stable=True",
        samples=(0,),
        dtypes=("float16", "bfloat16"),
    ),
)
