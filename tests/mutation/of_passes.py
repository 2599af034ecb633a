"""Mutations of passes: what an author gets wrong, group by group."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from rewriter.placeholder import Case, f32, i64
from tests.mutation.mutation import Mutation

if TYPE_CHECKING:
    from collections.abc import Iterator

_ROLL = "passes/movement/roll.py"
_FLIP = "passes/movement/flip.py"
_PAD = "passes/movement/pad.py"
_TRIL = "passes/movement/tril.py"
_PIXEL = "passes/movement/pixel.py"
_UNFOLD = "passes/movement/unfold.py"
_SHIFT = "passes/movement/time_shift.py"
_REPEAT = "passes/movement/repeat_interleave.py"


def mutations() -> Iterator[Mutation]:
    yield from _movement()
    yield from _activation()
    yield from _normalisation()
    yield from _sampling()
    yield from _detection()
    yield from _attention()
    yield from _fused()


def _movement() -> Iterator[Mutation]:
    yield Mutation(
        "roll turns the other way",
        "sign",
        _ROLL,
        "        cut = size - shift\n",
        "        cut = shift\n",
        "roll",
    )
    yield Mutation(
        "roll cuts one too early",
        "off by one",
        _ROLL,
        "        cut = size - shift\n",
        "        cut = size - shift - 1\n",
        "roll",
    )
    yield Mutation(
        "roll gathers rows that were moved back",
        "sign",
        _ROLL,
        "rows = np.roll(rows, shift, axis=axis)",
        "rows = np.roll(rows, -shift, axis=axis)",
        "roll",
        Case(f32(2, 4, 6, 32), shifts=[-1, -2], dims=[1, 2]),
    )
    yield Mutation(
        "roll moves the axis before",
        "wrong axis",
        _ROLL,
        "axes = [dim % max(x.rank, 1) for dim in dims]",
        "axes = [(dim - 1) % max(x.rank, 1) for dim in dims]",
        "roll",
    )
    yield Mutation(
        "roll forgets the first of two shifts along an axis",
        "dropped node",
        _ROLL,
        "total[axis] = total.get(axis, 0) + shift",
        "total[axis] = shift",
        "roll",
        Case(f32(4, 5), shifts=[1, 2], dims=[1, 1]),
    )
    yield Mutation(
        "roll by 1 of an open axis drops an element",
        "off by one",
        _ROLL,
        "tail=([-1], [np.iinfo(np.int64).max]), head=([0], [-1])",
        "tail=([-1], [np.iinfo(np.int64).max]), head=([0], [-2])",
        "roll",
        open=True,
    )
    yield Mutation(
        "flip begins before the end",
        "off by one",
        _FLIP,
        "starts = [-1] * len(axes)",
        "starts = [-2] * len(axes)",
        "flip",
    )
    yield Mutation(
        "rot90 turns the other way",
        "sign",
        _FLIP,
        "flipped_before = second if turns == 1 else first",
        "flipped_before = first if turns == 1 else second",
        "rot90",
    )
    yield Mutation(
        "pad takes the first axis first",
        "wrong axis",
        _PAD,
        "before[x.rank - 1 - i], after[x.rank - 1 - i] = pad[2 * i], pad[2 * i + 1]",
        "before[i], after[i] = pad[2 * i], pad[2 * i + 1]",
        "pad",
        code="pass-fault",  # its own infer() says otherwise
    )
    yield Mutation(
        "pad exchanges the ends",
        "swapped inputs",
        _PAD,
        "before[x.rank - 1 - i], after[x.rank - 1 - i] = pad[2 * i], pad[2 * i + 1]",
        "before[x.rank - 1 - i], after[x.rank - 1 - i] = pad[2 * i + 1], pad[2 * i]",
        "pad",
    )
    yield Mutation(
        "pad forgets its value",
        "optional input dropped",
        _PAD,
        "return g.pad(data, *added, mode=_MODES[mode], value=value)",
        "return g.pad(data, *added, mode=_MODES[mode])",
        "pad",
        Case(f32(4, 5), pad=[1, 2], value=1.5),
    )
    yield Mutation(
        "circular padding takes the wrong end",
        "off by one",
        _PAD,
        "start, end = (-before[axis], _END) if size is None else (size - before[axis], size)",
        "start, end = (-before[axis], _END) if size is None else (size - before[axis] - 1, size - 1)",
        "circular_pad",
    )
    yield Mutation(
        "triu keeps the lower triangle",
        "wrong attribute",
        _TRIL,
        "upper=int(upper))",
        "upper=int(not upper))",
        "triu",
    )
    yield Mutation(
        "tril forgets its diagonal",
        "optional input dropped",
        _TRIL,
        "None if diagonal == 0 else k",
        "None",
        "tril",
        Case(f32(4, 3), diagonal=1),
    )
    yield Mutation(
        "tril leaves out the diagonal",
        "off by one",
        _TRIL,
        "g.const(offsets >= diagonal if upper else offsets <= diagonal)",
        "g.const(offsets >= diagonal if upper else offsets < diagonal)",
        "tril",
        opset=13,
    )
    yield Mutation(
        "pixel_shuffle exchanges height and width",
        "wrong axis",
        _PIXEL,
        "x = g.transpose(x, [0, 2, 1, 3])\n    return g.reshape(x, [*images,",
        "x = g.transpose(x, [0, 3, 1, 2])\n    return g.reshape(x, [*images,",
        "pixel_shuffle",
    )
    yield Mutation(
        "pixel_unshuffle in TensorFlow's order of channels",
        "wrong axis",
        _PIXEL,
        "return x if downscale_factor == 1 else unshuffle_by_space_to_depth(g, x, downscale_factor)",
        "return x if downscale_factor == 1 else g.op('SpaceToDepth', x, blocksize=downscale_factor)",
        "pixel_unshuffle",
    )
    yield Mutation(
        "unfold steps by the number of blocks",
        "stale shape",
        _UNFOLD,
        "across = np.arange(kw)[None, :, None] * tall",
        "across = np.arange(kw)[None, :, None] * count",
        "unfold",
    )
    yield Mutation(
        "repeat_interleave repeats the whole",
        "wrong axis",
        _REPEAT,
        "[g.unsqueeze(g.reshape(x, sizes), [axis + 1])] * repeats[0], axis + 1)",
        "[g.unsqueeze(g.reshape(x, sizes), [axis])] * repeats[0], axis)",
        "repeat_interleave",
    )
    yield Mutation(
        "time_shift with a computed shift is late by one",
        "off by one",
        _SHIFT,
        "last = as_value(g, size) - 1",
        "last = as_value(g, size) - 2",
        "time_shift",
        Case(f32(2, 3, 4), i64(value=-1), dim=1),
    )


def _activation() -> Iterator[Mutation]:
    hard, gelu, glu = (f"passes/activation/{name}.py" for name in ("hard", "gelu", "glu"))
    yield Mutation(
        "hardswish with ONNX's default slope",
        "wrong attribute default",
        hard,
        "alpha=1 / 6, beta=0.5)",
        "beta=0.5)",
        "hardswish",
    )
    yield Mutation(
        "hardsigmoid is not limited",
        "dropped node",
        hard,
        'result: Value = g.op("HardSigmoid", x, alpha=1 / 6, beta=0.5)\n    return result',
        "return x * (1 / 6) + 0.5",
        "hardsigmoid",
    )
    yield Mutation(
        "gelu multiplies by the root of two",
        "wrong operator",
        gelu,
        "(g.erf(x / math.sqrt(2)) + 1)",
        "(g.erf(x * math.sqrt(2)) + 1)",
        "gelu",
    )
    yield Mutation(
        "gelu with a rounded constant",
        "wrong rounding",
        gelu,
        "0.044715 * scale",
        "0.045 * scale",
        "gelu",
        Case(f32(2, 3, 8), approximate="tanh"),
    )
    yield Mutation(
        "gelu ignores that it is approximated",
        "wrong attribute default",
        gelu,
        '    if approximate == "none":\n        # Written',
        '    if approximate != "":\n        # Written',
        "gelu",
        Case(f32(2, 3, 8), approximate="tanh"),
    )
    yield Mutation(
        "glu gates the gate",
        "swapped inputs",
        glu,
        "value, gate = _halves(g, x, dim)",
        "gate, value = _halves(g, x, dim)",
        "glu",
    )
    yield Mutation(
        "swiglu halves at half of the batch",
        "wrong axis",
        glu,
        "axis = dim % x.rank",
        "axis = 0",
        "swiglu",
        Case(f32(4, 6)),
    )
    yield Mutation(
        "softplus is not divided by beta",
        "dropped node",
        "passes/activation/softplus.py",
        "    if beta != 1.0:\n        result = result / beta\n",
        "",
        "softplus",
        Case(f32(2, 3), beta=2.0),
    )
    yield Mutation(
        "softplus overflows",
        "dropped node",
        "passes/activation/softplus.py",
        "return _unscaled(g, x, scaled, g.relu(scaled) - _log_sigmoid_of_magnitude(g, scaled), beta, threshold)",
        "return _unscaled(g, x, scaled, g.log(g.exp(scaled) + 1), beta, threshold)",
        "softplus",
    )
    yield Mutation(
        "celu multiplies by alpha inside",
        "wrong operator",
        "passes/activation/elu.py",
        "return _elu(g, x, 1.0, alpha, 1 / alpha)",
        "return _elu(g, x, 1.0, alpha, alpha)",
        "celu",
        Case(f32(2, 3, 8), alpha=0.5),
    )
    yield Mutation(
        "elu without the linear part's scale",
        "optional input dropped",
        "passes/activation/elu.py",
        "return _elu(g, x, scale, scale * alpha, input_scale)",
        "return _elu(g, x, 1.0, scale * alpha, input_scale)",
        "elu",
        Case(f32(2, 3, 8), alpha=1.5, scale=1.25, input_scale=0.5),
    )
    yield Mutation(
        "logsigmoid gives its results in the other order",
        "output order swapped",
        "passes/activation/softplus.py",
        'return result, g.exp(-g.abs(x)) if g.wants("buffer") else None',
        "return g.exp(-g.abs(x)), result",
        "logsigmoid",
    )


def _normalisation() -> Iterator[Mutation]:
    layer, group, rms = (
        f"passes/normalisation/{name}.py" for name in ("layer_norm", "group_norm", "rms_norm")
    )
    yield Mutation(
        "layer_norm forgets epsilon",
        "epsilon forgotten",
        layer,
        "axis=axis, epsilon=eps)",
        "axis=axis, epsilon=0.0)",
        "layer_norm",
    )
    yield Mutation(
        "layer_norm forgets epsilon in its own operators",
        "epsilon forgotten",
        layer,
        "result = centred / g.sqrt(variance + eps)",
        "result = centred / g.sqrt(variance)",
        "layer_norm",
        opset=13,
    )
    yield Mutation(
        "layer_norm adds epsilon to the deviation",
        "epsilon forgotten",
        layer,
        "result = centred / g.sqrt(variance + eps)",
        "result = centred / (g.sqrt(variance) + eps)",
        "layer_norm",
        opset=13,
    )
    yield Mutation(
        "layer_norm with the operator's default epsilon",
        "wrong attribute default",
        layer,
        "axis=axis, epsilon=eps)",
        "axis=axis)",
        "layer_norm",
        Case(f32(2, 3, 4), [4], None, None, eps=1e-6),
    )
    yield Mutation(
        "layer_norm over the last axis only",
        "wrong axis",
        layer,
        "axis = -len(normalized_shape)",
        "axis = -1",
        "layer_norm",
        Case(f32(2, 3, 4), [3, 4], None, f32(3, 4), eps=0.5),
    )
    yield Mutation(
        "group_norm exchanges groups and their size",
        "stale shape",
        group,
        "rows = g.reshape(given, [n, num_groups, _group_size(g, x, num_groups, weight, bias)])",
        "rows = g.reshape(given, [n, _group_size(g, x, num_groups, weight, bias), num_groups])",
        "group_norm",
        code="pass-fault",  # its own infer() says otherwise
    )
    yield Mutation(
        "group_norm takes the bias for the weight",
        "swapped inputs",
        group,
        "result = scale_channels(g, result, None if weight is None else g.cast(weight, given), shift)",
        "result = scale_channels(g, result, shift, None if weight is None else g.cast(weight, given))",
        "group_norm",
    )
    yield Mutation(
        "instance_norm forgets epsilon",
        "epsilon forgotten",
        "passes/normalisation/_channels.py",
        'g.op("InstanceNormalization", x, scale, shift, epsilon=eps)',
        'g.op("InstanceNormalization", x, scale, shift, epsilon=0.0)',
        "instance_norm",
    )
    yield Mutation(
        "rms_norm sums instead of averaging",
        "wrong operator",
        rms,
        "root = g.sqrt(g.reduce_mean(g.pow(given, 2.0), axes) + epsilon)",
        "root = g.sqrt(g.reduce_sum(g.pow(given, 2.0), axes) + epsilon)",
        "rms_norm",
    )
    yield Mutation(
        "rms_norm takes float32's epsilon for another",
        "wrong attribute default",
        rms,
        "eps = float(np.finfo(np.float64 if x.dtype == TensorProto.DOUBLE else np.float32).eps)",
        "eps = 1e-5",
        "rms_norm",
        Case(f32(2, 3, 4), [3, 4], f32(3, 4)),
    )


def _sampling() -> Iterator[Mutation]:
    grid, align, rois, resampling = (
        f"passes/sampling/{name}.py" for name in ("_grid_gathers", "roi_align", "_rois", "affine_grid")
    )
    yield Mutation(
        "grid_sample takes y for x",
        "swapped inputs",
        "passes/sampling/_places.py",
        "    position = g.cast(axes[-1], TensorProto.INT64)\n    for axis, size in zip(reversed(axes[:-1])",
        "    axes = axes[::-1]\n    position = g.cast(axes[-1], TensorProto.INT64)\n"
        "    for axis, size in zip(reversed(axes[:-1])",
        "grid_sample",
        Case(f32(2, 3, 5, 4), f32(2, 3, 2, 2), mode="nearest"),
    )
    yield Mutation(
        "grid_sample takes the pixel below for the nearest",
        "wrong rounding",
        grid,
        "pixel = self.outside(g.round(place), -1.0) + 1",
        "pixel = self.outside(g.floor(place), -1.0) + 1",
        "grid_sample",
        Case(f32(2, 3, 5, 4), f32(2, 3, 2, 2), mode="nearest"),
    )
    yield Mutation(
        "grid_sample stops one pixel before the border",
        "off by one",
        grid,
        "last = self.of_sizes(lambda s: s - 1)",
        "last = self.of_sizes(lambda s: s - 2)",
        "grid_sample",
        Case(f32(2, 3, 5, 4), f32(2, 3, 2, 2), mode="nearest", padding_mode="border"),
    )
    yield Mutation(
        "grid_sample with another cubic kernel",
        "wrong constant",
        grid,
        "g, a = self.g, -0.75",
        "g, a = self.g, -0.5",
        "grid_sample",
        Case(f32(2, 3, 5, 4), f32(2, 3, 2, 2), mode="bicubic"),
        opset=13,
    )
    yield Mutation(
        "roi_align forgets half a pixel",
        "wrong attribute",
        align,
        'half = "half_pixel" if aligned else "output_half_pixel"',
        'half = "output_half_pixel"',
        "roi_align",
        Case(f32(2, 3, 5, 6), f32(5, 5), 0.75, 2, 3, 2, True),
    )
    yield Mutation(
        "roi_align reads every box from the first image",
        "swapped inputs",
        rois,
        "return g.cast(batch, TensorProto.INT64)\n",
        "return g.cast(batch * 0, TensorProto.INT64)\n",
        "roi_align",
        Case(f32(2, 3, 5, 6), f32(5, 5), 0.75, 2, 3, 2, True),
        opset=11,
    )
    yield Mutation(
        "ps_roi_align takes its bins in the other order",
        "wrong axis",
        rois,
        "moved = g.transpose(g.reshape(x, [batch, channels, groups, area]), [0, 2, 3, 1])",
        "moved = g.transpose(g.reshape(x, [batch, groups, channels, area]), [0, 1, 3, 2])",
        "ps_roi_align",
    )
    yield Mutation(
        "affine_grid mixes up pixel centres and corners",
        "off by one",
        resampling,
        "(max(size - 1, 1) if align_corners else size)",
        "(size if align_corners else max(size - 1, 1))",
        "affine_grid",
    )
    yield Mutation(
        "affine_grid translates by the first column",
        "wrong broadcast",
        resampling,
        "row(along * columns[0] + columns[-1])",
        "row(along * columns[0] + columns[0])",
        "affine_grid",
    )


def _detection() -> Iterator[Mutation]:
    boxes, shared = "passes/detection/box_decode.py", "passes/detection/_nms.py"
    yield Mutation(
        "box_decode does not limit sizes",
        "dropped node",
        boxes,
        "        stretch = g.minimum(stretch, clip)\n",
        "        pass\n",
        "box_decode",
    )
    yield Mutation(
        "box_decode multiplies by its weights",
        "wrong operator",
        boxes,
        "return x / g.const(np.asarray(weights).reshape(shape), x)",
        "return x * g.const(np.asarray(weights).reshape(shape), x)",
        "box_decode",
        Case(f32(6, 4), f32(6, 4), weights=[10.0, 5.0, 4.0, 2.0]),
    )
    yield Mutation(
        "box_decode takes corners for centres",
        "wrong attribute",
        boxes,
        "    size = far - near\n    return near + size * 0.5, size",
        "    return near, far",
        "box_decode",
    )
    yield Mutation(
        "nms ignores its threshold",
        "wrong constant",
        shared,
        "max(floor32(min(threshold, 1.0)), _SMALLEST)",
        "max(floor32(min(threshold, 0.5)), _SMALLEST)",
        "nms",
        Case(f32(24, 4), f32(24), iou_threshold=0.75),
    )
    yield Mutation(
        "nms keeps one box too few",
        "off by one",
        shared,
        "return _NO_LIMIT if count is None else max(count, 1)",
        "return 3",
        "nms",
    )
    yield Mutation(
        "batched_nms suppresses across classes",
        "dropped node",
        "passes/detection/batched_nms.py",
        "offsets = g.cast(idxs, wide) * (largest + 1)",
        "offsets = g.cast(idxs, wide) * 0.0",
        "batched_nms",
    )
    yield Mutation(
        "multiclass_nms counts the background",
        "off by one",
        "passes/detection/_multiclass.py",
        "    if options.background == 0:\n        classes = classes + 1\n",
        "    if options.background == 0:\n        pass\n",
        "multiclass_nms",
        Case(f32(12, 4), f32(12, 3), score_threshold=0.25, background=0),
    )


def _attention() -> Iterator[Mutation]:
    attention, rotary, alibi = (
        f"passes/attention/{name}.py"
        for name in ("scaled_dot_product_attention", "rotary_embedding", "alibi")
    )
    yield Mutation(
        "attention normalises over the queries",
        "wrong axis",
        attention,
        "weights = g.softmax(scores, -1)",
        "weights = g.softmax(scores, -2)",
        "scaled_dot_product_attention",
    )
    yield Mutation(
        "causal attention sees one key too many",
        "off by one",
        attention,
        "allowed = np.tri(length, keys, first, dtype=bool)",
        "allowed = np.tri(length, keys, first + 1, dtype=bool)",
        "scaled_dot_product_attention",
        Case(f32(2, 4, 4), f32(2, 4, 4), f32(2, 4, 3), is_causal=True),
    )
    yield Mutation(
        "attention forgets its mask",
        "optional input dropped",
        attention,
        "    if bias is not None:\n        scores = scores + bias\n",
        "",
        "scaled_dot_product_attention",
        Case(f32(1, 2, 3, 4), f32(1, 2, 3, 4), f32(1, 2, 3, 4), f32(3, 3)),
    )
    yield Mutation(
        "rotary_embedding turns the other way",
        "sign",
        rotary,
        "left, right = first * cos - second * sin, second * cos + first * sin",
        "left, right = first * cos + second * sin, second * cos - first * sin",
        "rotary_embedding",
    )
    yield Mutation(
        "alibi measures from the key",
        "swapped inputs",
        alibi,
        'numbers = key if mode == "key" else key - query',
        'numbers = key if mode == "key" else query - key',
        "alibi",
    )
    yield Mutation(
        "alibi with slopes of an eighth power too few",
        "wrong constant",
        alibi,
        "2 ** (-8 * (i + 1) / power)",
        "2 ** (-8 * i / power)",
        "alibi",
    )
    yield Mutation(
        "neighbours of the last queries are cut off",
        "off by one",
        "passes/attention/neighborhood_attention.py",
        "first = np.clip(at - kernel // 2, 0, length - kernel)",
        "first = np.clip(at - kernel // 2, 0, length)",
        "neighborhood_attention",
    )


def _fused() -> Iterator[Mutation]:
    conv, scan = "passes/fused/_conv.py", "passes/fused/selective_scan.py"
    known = np.random.default_rng(0).standard_normal((2, 3, 3)).astype(np.float32)
    statistics = {
        "bn_weight": np.float32([1.0, -2.0]),
        "bn_bias": np.float32([0.5, 0.0]),
        "running_mean": np.float32([0.3, -1.0]),
    }
    yield Mutation(
        "conv_bn adds the mean",
        "sign",
        conv,
        "(_known(bias) - mean) * scale",
        "(_known(bias) + mean) * scale",
        "conv_bn",
    )
    yield Mutation(
        "conv_bn divides by the variance",
        "dropped node",
        conv,
        "scale = (1.0 if gamma is None else gamma) / np.sqrt(variance + eps)",
        "scale = (1.0 if gamma is None else gamma) / (variance + eps)",
        "conv_bn",
    )
    yield Mutation(
        "conv_bn forgets epsilon",
        "epsilon forgotten",
        conv,
        "scale = (1.0 if gamma is None else gamma) / np.sqrt(variance + eps)",
        "scale = (1.0 if gamma is None else gamma) / np.sqrt(variance)",
        "conv_bn",
        Case(
            f32(2, 3, 8),
            weight=known,
            bias=None,
            **statistics,
            running_var=np.float32([1e-4, 0.5]),
        ),
    )
    yield Mutation(
        "conv_relu pads behind only",
        "wrong attribute",
        conv,
        'return _each(g, "padding", padding, spatial) * 2',
        'return [0] * spatial + [2 * p for p in _each(g, "padding", padding, spatial)]',
        "conv_relu",
    )
    yield Mutation(
        "selective_scan forgets the skip",
        "optional input dropped",
        scan,
        "    if D is not None:\n        result = result + x * g.unsqueeze(g.cast(D, x), [1])\n",
        "",
        "selective_scan",
        Case(f32(2, 4, 5), f32(2, 4, 5), f32(4, 3), f32(2, 3, 5), f32(2, 3, 5), f32(4), delta_softplus=True),
    )
    yield Mutation(
        "selective_scan goes back in time",
        "wrong axis",
        scan,
        "first = g.transpose(value, [2, 0, 1])\n        if groups is None:",
        "first = g.slice(g.transpose(value, [2, 0, 1]), [-1], [-(2**31)], [0], [-1])\n        if groups is None:",
        "selective_scan",
    )
    yield Mutation(
        "fused_leaky_relu is not scaled",
        "dropped node",
        "passes/fused/fused_leaky_relu.py",
        "return made if scale == 1 else made * scale",
        "return made",
        "fused_leaky_relu",
    )
    yield Mutation(
        "fused_leaky_relu with ONNX's default slope",
        "wrong attribute default",
        "passes/fused/fused_leaky_relu.py",
        'made = g.op("LeakyRelu", x, alpha=negative_slope)',
        'made = g.op("LeakyRelu", x)',
        "fused_leaky_relu",
    )
    yield Mutation(
        "linear_relu has its weight the other way round",
        "wrong attribute",
        "passes/fused/linear_relu.py",
        'g.op("Gemm", x, weight, bias, transB=1)',
        'g.op("Gemm", x, weight, bias, transB=0)',
        "linear_relu",
        Case(f32(3, 4), f32(4, 4), f32(4)),
    )
