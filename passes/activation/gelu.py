"""GELU (Hendrycks and Gimpel, 2016, arXiv:1606.08415)."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from rewriter.errors import UnsupportedParameter
from rewriter.placeholder import ELEMENTWISE, Case, Placeholder, decomposition, f32

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rewriter.placeholder import Builder, Value


class Gelu(Placeholder):
    """x · Φ(x), elementwise; exact by erf or approximated by tanh, the meaning of `torch.nn.functional.gelu`."""

    matches = ("Gelu", "aten::gelu", "aten::gelu_")
    standard = {  # noqa: RUF012
        "Gelu": lambda op: {"x": op.x, "approximate": op.get("approximate")}
    }
    shapes = "x: ..."
    # onnxruntime has no float64 kernel of Erf, but of Tanh.
    dtypes = ("float16", "float32", "float64")
    tolerances = ELEMENTWISE

    def reference(self, x: Any, approximate: str = "none") -> Any:
        import torch

        return torch.nn.functional.gelu(x, approximate=approximate)

    def terms(self, x: Any, approximate: str = "none") -> Any:
        return gelu_terms(x, approximate)

    def infer(self, x: Value, **_: Any) -> Any:
        return x.type

    @decomposition()
    def formula(self, g: Builder, x: Value, approximate: str = "none") -> Value:
        return gelu(g, x, approximate)

    @decomposition(opset=20, portable=False, reason="one kernel, where the runtime has it")
    def native(self, g: Builder, x: Value, approximate: str = "none") -> Value:
        _check(g, approximate)
        result: Value = g.op("Gelu", x, approximate=approximate)
        return result

    def cases(self) -> Iterator[Case]:
        for approximate in ("none", "tanh"):
            exact = ("float16", "float32") if approximate == "none" else None
            yield Case(f32(2, 3, 8), dtypes=exact, approximate=approximate)
            yield Case(f32(), dtypes=exact, approximate=approximate)
            yield Case(f32(0, 3), dtypes=exact, approximate=approximate)
            yield Case(
                f32(8, value=(-100.0, -10.0, -1e-3, -0.0, 0.0, 3.0, 30.0, float("nan"))),
                dtypes=exact,
                approximate=approximate,
            )
            # torch's vectorised erf form gives NaN at +∞ as well, which nobody means.
            yield Case(f32(1, value=(float("-inf"),)), dtypes=exact, approximate=approximate)
        yield Case(f32(1, value=(float("inf"),)), approximate="tanh")


def gelu(g: Builder, x: Value, approximate: str) -> Value:
    """GELU of ``x`` in opset-11 operators; UnsupportedParameter for a mode that torch has not."""
    _check(g, approximate)
    if approximate == "none":
        # Written as runtimes look for it: onnxruntime makes one kernel of just this form, with the division.
        return x * (g.erf(x / math.sqrt(2)) + 1) * 0.5
    scale = math.sqrt(2 / math.pi)
    inner = x * (x * x * (0.044715 * scale) + scale)
    return x * 0.5 * (g.tanh(inner) + 1)


def gelu_terms(x: Any, approximate: str) -> dict[str, Any]:
    """By what the error of the kernel that GELU rests on is multiplied, x being what multiplies Φ."""
    return {"Tanh" if approximate == "tanh" else "Erf": x / 2}


def _check(g: Builder, approximate: str) -> None:
    if approximate not in ("none", "tanh"):
        raise UnsupportedParameter(
            f"approximate is '{approximate}'", where=g.where, remedy="it is 'none' or 'tanh'"
        )
