"""x² + 1, the operator of PyTorch's tutorial on custom symbolics."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rewriter.placeholder import Case, Placeholder, f32

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rewriter.placeholder import Builder, Value


class SquarePlusOne(Placeholder):
    """x² + 1, elementwise."""

    matches = ("SquarePlusOne",)
    shapes = "x: ..."
    dtypes = ("float16", "float32", "float64", "int32", "int64")

    def reference(self, x: Any) -> Any:
        return x * x + 1

    def infer(self, x: Value) -> Any:
        return x.type

    def decompose(self, g: Builder, x: Value) -> Value:
        # Mul, not Pow: Pow takes no int64 at every opset, and costs a transcendental function where runtimes do not
        # recognise the exponent.
        return x * x + 1

    def cases(self) -> Iterator[Case]:
        yield Case(f32(2, 3))
        yield Case(f32())
        yield Case(f32(0, 4))
        yield Case(f32(5, value=(0, 1, -1, 200, -3)))
        yield Case(
            f32(4, value=(float("inf"), float("-inf"), float("nan"), -0.0)),
            dtypes=("float16", "float32", "float64"),
        )
