"""Domains as data: which are ONNX's own, and which belong to a runtime."""

from __future__ import annotations

#: Domains that the ONNX specification defines.
STANDARD_DOMAINS = frozenset({"", "ai.onnx", "ai.onnx.ml", "ai.onnx.training", "ai.onnx.preview.training", "ai.onnx.preview"})

#: Domains whose operators a runtime or its extension package implements; each with what lies below it.
RUNTIME_DOMAINS = (
    "com.microsoft",
    "com.ms",
    "ai.onnx.contrib",
    "ai.onnxruntime",
    "com.nvidia",
    "trt",
    "TRT",
    "org.openvinotoolkit",
    "ai.rknpu",
    "com.amd",
    "com.qti",
)


def is_standard_domain(domain: str) -> bool:
    return domain in STANDARD_DOMAINS


def is_runtime_domain(domain: str) -> bool:
    """Whether the operators of ``domain`` are a runtime's own: they are declared, never taken for placeholders."""
    return any(domain == known or domain.startswith(known + ".") for known in RUNTIME_DOMAINS)
