"""Operators that draw random numbers, made to draw the same ones in every session.

onnxruntime seeds those that have no ``seed`` by the clock and by their place in the graph, and each kernel goes on
where its last run ended.  So two copies of one model differ, and nothing can be said of them.
"""

from __future__ import annotations

import zlib
from typing import TYPE_CHECKING

from onnx import helper

from rewriter.domains import normal_domain
from rewriter.graph.scopes import function_scope, main_scope

if TYPE_CHECKING:
    from onnx import ModelProto

#: What ``seed`` is made of: an integer for Dropout, a number of single precision for the others.
_SEED_TYPES: dict[str, type[int] | type[float]] = {
    "Bernoulli": float,
    "Dropout": int,
    "Multinomial": float,
    "RandomNormal": float,
    "RandomNormalLike": float,
    "RandomUniform": float,
    "RandomUniformLike": float,
}


def plant_seeds(model: ModelProto) -> bool:
    """Give every operator of ``model`` that draws and has no seed one that follows from its result's name.

    Whether there are any that draw, with a seed of their own or without.
    """
    found = False
    for root in (main_scope(model), *map(function_scope, model.functions)):
        for scope in root.walk():
            for node in scope.graph.node:
                kind = _SEED_TYPES.get(node.op_type)
                if kind is None or normal_domain(node.domain) or not any(node.output):
                    continue
                if node.op_type == "Dropout" and not (len(node.input) > 2 and node.input[2]):
                    continue
                found = True
                if not any(attribute.name == "seed" for attribute in node.attribute):
                    name = next(name for name in node.output if name)
                    raw = name if isinstance(name, bytes) else name.encode("utf-8", "surrogateescape")
                    # 24 bits, which a float holds exactly
                    node.attribute.append(helper.make_attribute("seed", kind(zlib.crc32(raw) & 0xFFFFFF)))
    return found
