"""Which operator domains are ONNX's own, which belong to a runtime, and what ONNX knows in its own."""

from __future__ import annotations

import functools

from onnx import defs

#: Domains that the ONNX standard defines.  ``ai.onnx`` is another spelling of the default one.
STANDARD_DOMAINS = frozenset(
    {"", "ai.onnx", "ai.onnx.ml", "ai.onnx.training", "ai.onnx.preview", "ai.onnx.preview.training"}
)

#: Domains in which a runtime defines operators of its own, and that runtime.  A domain below one of them
#: (``com.microsoft.nchwc``) belongs to the same runtime.
RUNTIME_DOMAINS = {
    "com.microsoft": "onnxruntime",
    "com.ms": "onnxruntime",
    "ai.onnx.contrib": "onnxruntime-extensions",
    "ai.graphcore": "PopART",
    "com.qti.aisw": "Qualcomm AI Engine Direct",
    "org.openvinotoolkit": "OpenVINO",
    "trt.plugins": "TensorRT",
}

#: Oldest version of the default domain that decompositions are written for.
MINIMUM_OPSET = 11


def normal_domain(domain: str) -> str:
    """``ai.onnx`` written as the default domain that it is."""
    return "" if domain == "ai.onnx" else domain


def is_standard_domain(domain: str) -> bool:
    return domain in STANDARD_DOMAINS


def runtime_of(domain: str) -> str | None:
    """The runtime that owns ``domain``, or None."""
    while domain:
        if domain in RUNTIME_DOMAINS:
            return RUNTIME_DOMAINS[domain]
        domain = domain.rpartition(".")[0]
    return None


def is_runtime_domain(domain: str) -> bool:
    """Whether operators in ``domain`` are a runtime's own, and therefore no placeholders."""
    return runtime_of(domain) is not None


@functools.cache
def is_standard_operator(op_type: str, version: int, domain: str) -> bool:
    """Whether ONNX defines ``op_type`` at ``version`` of the standard domain ``domain``; deprecated ones count."""
    return defs.has(op_type, version, normal_domain(domain))


@functools.cache
def since_opset(op_type: str, domain: str = "") -> int | None:
    """The first version of a standard domain that defines ``op_type``; None where no version does."""
    versions = _history().get((normal_domain(domain), op_type))
    return min(versions) if versions else None


@functools.cache
def since_version(op_type: str, version: int) -> int:
    """The version that brought the form of an operator of the default domain that opset ``version`` has."""
    return int(defs.get_schema(op_type, version, "").since_version)


@functools.cache
def standard_operators() -> frozenset[str]:
    """The names of all operators that any version of the default domain defines."""
    return frozenset(op_type for domain, op_type in _history() if domain == "")


@functools.cache
def _history() -> dict[tuple[str, str], list[int]]:
    found: dict[tuple[str, str], list[int]] = {}
    for schema in defs.get_all_schemas_with_history():
        found.setdefault((schema.domain, schema.name), []).append(schema.since_version)
    return found
