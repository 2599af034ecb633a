"""What was asked for inputs held against the model as it came: a slip is said before any work is done."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from rewriter.graph.interface import dims_of
from rewriter.graph.utf8 import check_values
from rewriter.inputs.dims import Sizes
from rewriter.inputs.draw import check_ranges
from rewriter.inputs.given import check_given, fit_dtype, load_given, outline
from rewriter.types import TensorType, dtype_name

if TYPE_CHECKING:
    from onnx import ModelProto

    from rewriter.verify.options import VerifyOptions


def check_asked(model: ModelProto, options: VerifyOptions, *, keeps: bool = False) -> VerifyOptions:
    """``options`` with the given inputs read; UsageError where dims, ranges or inputs fit no input of ``model``,
    CannotVerifyError where a value has a name that no runtime reads.

    With ``keeps``, operators may be cut out, and what they give has dims of its own: any that the model names is taken.
    """
    check_values(model)
    overridable = {t.name for t in model.graph.initializer}
    overridable |= {t.values.name for t in model.graph.sparse_initializer}
    wanted = [value for value in model.graph.input if value.name not in overridable]
    typed = {value.name: TensorType.from_proto(value.type) for value in wanted}
    kinds = {name: kind for name, kind in typed.items() if kind is not None}
    inner = (
        {dim.dim_param for value in model.graph.value_info for _, dim in dims_of(value.type)} if keeps else ()
    )
    Sizes(kinds, {name: sizes for name, sizes in options.dims.items() if name not in inner})
    unknown = typed.keys() - kinds.keys()  # sequences and the like, which are refused where they are drawn
    check_ranges({name: ends for name, ends in options.input_ranges.items() if name not in unknown}, kinds)
    if options.inputs is None:
        return options
    required = [value.name for value in wanted]
    check_given(outline(options.inputs), kinds, required, optional=overridable)
    given = load_given(options.inputs)
    check_given(given, {}, required, optional=overridable)
    for name, kind in kinds.items():
        given[name] = fit_dtype(
            name, given[name], kind, "--inputs", f"the model takes {dtype_name(kind.dtype)}"
        )
    return replace(options, inputs=given)
