"""Col2Im, RoiAlign, GridSample: operators on windows of images."""

from __future__ import annotations

from typing import TYPE_CHECKING

from onnx import TensorProto as T

from rewriter.lower.forms.table import form

if TYPE_CHECKING:
    from rewriter.lower.writer import Writer
    from rewriter.placeholder.standard import Call
    from rewriter.placeholder.value import Value


@form("Col2Im")
def col2im(g: Writer, call: Call) -> Value | None:
    """Blocks added up by a ConvTranspose whose kernel puts each row of a block in its place."""
    x, image, block = call.inputs
    assert x is not None
    assert image is not None
    assert block is not None
    d = image.size(0)
    if d is None:
        return None
    strides, dilations = (g.ints(call.get(name, [1] * d)) for name in ("strides", "dilations"))
    pads = call.get("pads", [0] * 2 * d)
    before, after = g.ints(pads[:d]), g.ints(pads[d:])
    spans = (block - 1) * dilations + 1
    counts = g.op("Div", image + before + after - spans, strides) + 1
    rows = g.reduce_prod(block, [0])
    shape = g.concat([g.ints([-1]), rows, counts], 0)
    planes = g.op("Reshape", x, shape)
    square = g.newer(9, "EyeLike", g.newer(9, "ConstantOfShape", g.concat([rows, rows], 0)), dtype=T.FLOAT)
    kernel = g.op("Reshape", g.cast(square, x), g.concat([rows, g.ints([1]), block], 0))
    added = g.op(
        "ConvTranspose",
        planes,
        kernel,
        strides=call.get("strides", [1] * d),
        dilations=call.get("dilations", [1] * d),
    )
    size = (counts - 1) * strides + spans
    short = (
        g.op("Max", before + image - size, g.ints([0]))
        if g.opset >= 12
        else g.cast(g.relu(g.cast(before + image - size, T.FLOAT)), T.INT64)
    )
    padded = g.op("Pad", added, g.concat([g.ints([0] * (d + 4)), short], 0))
    axes = list(range(2, d + 2))
    cut = g.slice(padded, before, before + image, axes)
    outer = g.gather(g.op("Shape", x), [0], 0)
    return g.one("Reshape", cut, g.concat([outer, g.ints([-1]), image], 0))


@form("RoiAlign")
def roi_align(g: Writer, call: Call) -> Value | None:
    """The meaning before opset 16 is output_half_pixel; the other by boxes half a pixel off is a pass's."""
    mode = (
        call.get("coordinate_transformation_mode", "half_pixel")
        if call.version >= 16
        else "output_half_pixel"
    )
    rest = call.given("coordinate_transformation_mode")
    if mode == "output_half_pixel":
        if g.opset >= 16:
            return g.newer(16, "RoiAlign", *call.inputs, coordinate_transformation_mode=mode, **rest)
        return g.newer(10, "RoiAlign", *call.inputs, **rest)
    return None


@form("GridSample")
def grid_sample(g: Writer, call: Call) -> Value | None:
    """Modes under the names of the target."""
    if call.x.rank != 4 or "GridSample" in g.absent or g.opset < 16:
        return None
    old = {"linear": "bilinear", "cubic": "bicubic"}
    new = {value: key for key, value in old.items()}
    mode = call.get("mode")
    mode = new.get(mode, mode) if g.opset >= 20 else old.get(mode, mode)
    return g.newer(min(g.opset, 20), "GridSample", *call.inputs, mode=mode, **call.given("mode"))
