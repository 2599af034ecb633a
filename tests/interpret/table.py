"""The node tests that do not agree, and why.  Every name that a pattern matches has its outcome, and no other has."""

from __future__ import annotations

import re
from dataclasses import dataclass

from tests.interpret.nodes import Outcome


@dataclass(frozen=True)
class Row:
    pattern: str
    outcome: Outcome
    reason: str

    def covers(self, name: str) -> bool:
        return re.fullmatch(f"test_(?:{self.pattern})", name) is not None


def _unsupported(pattern: str, reason: str) -> Row:
    return Row(pattern, Outcome.UNSUPPORTED, reason)


def _differs(pattern: str, reason: str) -> Row:
    return Row(pattern, Outcome.DIFFERS, reason)


_SMALL = "U?INT[24]|FLOAT4E2M1|FLOAT8E8M0"

ROWS: tuple[Row, ...] = (
    _unsupported("adagrad.*|adam.*|momentum.*|nesterov.*", "a domain of training, in no exported model"),
    _unsupported("ai_onnx_ml_.*", "a domain of trees and encoders, in no exported network"),
    _unsupported(
        "equal_string.*|regex_full_match_.*|string_.*|strnormalizer_.*", "PyTorch has no tensors of strings"
    ),
    _unsupported("tfidfvectorizer_.*", "an operator of text"),
    _unsupported("image_decoder_.*", "files of images are decoded before a model, if at all"),
    _unsupported("melweightmatrix", "a table that exporters fold"),
    _unsupported(f"cast(?:like)?_(?:e8m0_)?(?:{_SMALL})_to_.*", "PyTorch has no tensors of this type"),
    _unsupported(
        f"cast(?:like)?_(?:e8m0_)?.*_to_(?:{_SMALL})(?:_expanded)?", "PyTorch has no tensors of this type"
    ),
    _unsupported(r"(?:de)?quantizelinear_(?:u?int[24]|float4e2m1)", "PyTorch has no tensors of this type"),
    _unsupported("scan_sum", "Scan of opset 8, which has lengths as an input"),
    _unsupported("scatter_with(?:out)?_axis|upsample_nearest", "an operator that opset 11 has no more"),
    _differs(
        "bernoulli.*|training_dropout(?:_default)?(?:_mask)?", "random numbers, which no two runtimes share"
    ),
    _differs(
        "resize_downsample_scales_(?:linear|cubic)_align_corners",
        "the test has scale · length for the new length, which the operator, and onnxruntime, round down",
    ),
)

#: The further ones where float64 stands for every floating-point type.
WIDENED: tuple[Row, ...] = (
    _unsupported("bitcast_.*", "bits have no meaning in another type"),
    _differs(
        r"cast(?:like)?_(?:no_saturate_)?FLOAT(?:16)?_to_FLOAT8E[45]M[23](?:FN|FNUZ)?(?:_expanded)?",
        "nothing is rounded",
    ),
    _differs("quantizelinear_e4m3fn|quantizelinear_e5m2", "nothing is rounded"),
    _differs("dynamicquantizelinear(?:_expanded)?", "a number halfway in float32 is not so in float64"),
)
