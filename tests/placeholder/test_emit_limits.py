"""What a parameter asks for is bounded: a decomposition that would emit too much fails before it has made it."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest
from onnx import TensorProto

from rewriter.errors import UnsupportedParameter
from rewriter.placeholder import builder as builder_module
from rewriter.placeholder.builder import Builder
from rewriter.types import TensorType

HUGE = 10**9

#: Tries a pass's cases with one parameter made huge, with little memory, and prints what came of it.
TRY = """
import resource, sys
from rewriter.errors import RewriteError
from rewriter.placeholder.case import Case
from rewriter.placeholder.discovery import resolve
from rewriter.placeholder.expand import expand
from rewriter.testing.variants import site_of
used = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
for argument in sys.argv[1:]:
    name, parameter, value = argument.split(":")
    (placeholder,) = resolve(name)
    found = set()
    for case in placeholder.cases():
        arguments = case.arguments(placeholder.signature.names)
        old = arguments.get(parameter)
        if old is None or isinstance(old, bool):
            continue
        new = [int(value)] * len(old) if isinstance(old, (list, tuple)) else int(value)
        site = site_of(placeholder, Case(**{**arguments, parameter: new}), dtype="float32", opset=17, symbolic=False)
        resource.setrlimit(resource.RLIMIT_AS, (used + (700 << 20), resource.RLIM_INFINITY))
        try:
            expand(placeholder, site)
            found.add("made")
        except RewriteError as error:
            found.add(error.code)
        resource.setrlimit(resource.RLIMIT_AS, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    print(",".join(sorted(found)))
"""
ASKED = [
    f"affine_grid:size:{HUGE}",
    f"multiclass_nms:max_total:{HUGE}",
    f"ps_roi_align:sampling_ratio:{HUGE}",
    f"repeat_interleave:repeats:{HUGE}",
    f"roi_align_rotated:output_height:{HUGE}",
    f"roi_pool:pooled_width:{HUGE}",
    f"splice_frames:left_context:{HUGE}",
    f"upsample_bicubic2d_aa:output_size:{HUGE}",
]


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_huge_parameters() -> None:
    done = subprocess.run(
        [sys.executable, "-c", TRY, *ASKED], capture_output=True, text=True, check=True, timeout=120
    )
    said = dict(zip(ASKED, done.stdout.split(), strict=True))
    assert {name: codes for name, codes in said.items() if "unsupported-parameter" not in codes} == {}
    assert {name: codes for name, codes in said.items() if "pass-fault" in codes} == {}


def test_operators_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(builder_module, "MAX_NODES", 10)
    g = Builder(17)
    x = g.input("x", TensorType(TensorProto.FLOAT, (2,)))
    for _ in range(10):
        x = g.op("Neg", x)
    with pytest.raises(UnsupportedParameter):
        g.op("Neg", x)


def test_constants_are_counted_together(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(builder_module, "MAX_ELEMENTS", 100)
    g = Builder(17)
    before = g.mark()
    for number in range(2):
        g.const(np.full(40, number, np.float32))
    g.const(np.full(40, 1, np.float32))  # there already
    with pytest.raises(UnsupportedParameter):
        g.const(np.full(40, 2, np.float32))
    with pytest.raises(UnsupportedParameter):
        g.ints(range(10**12))
    with pytest.raises(UnsupportedParameter):
        g.afford(21)
    g.afford(20)
    g.rewind(before)
    g.afford(100)
