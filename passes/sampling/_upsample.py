"""What the passes for resampling share: the signature of aten's operators, and the two ways to write them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from passes.sampling import _places as places
from passes.sampling import _resampling as resampling
from rewriter.errors import UnsupportedParameter
from rewriter.placeholder import Placeholder, decomposition

if TYPE_CHECKING:
    from rewriter.placeholder import Builder, Floats, Ints, Value


class Upsample(Placeholder):
    """`output_size` or `scale_factors`; aten's other overload gives both, a scale for each axis by itself."""

    #: ONNX's mode, and the one of torch.nn.functional.interpolate.
    mode: ClassVar[str]
    interpolate: ClassVar[str]
    dims: ClassVar[int] = 2
    antialias: ClassVar[bool] = False
    # Weights are float32 numbers of magnitude 1, made from places of the size of the image.
    tolerances = {"float32": (2e-5, 2e-5)}  # noqa: RUF012

    def reference(
        self,
        x: Any,
        output_size: Any = None,
        align_corners: bool = False,
        scale_factors: Any = None,
        scales_2: float | None = None,
        scales_3: float | None = None,
    ) -> Any:
        import torch

        fine = x.float() if x.dtype in (torch.float16, torch.bfloat16) else x
        name = f"{'_' * self.antialias}upsample_{self.interpolate}{self.dims}d{'_aa' * self.antialias}"
        operator = getattr(torch.ops.aten, name)
        sizes = output_size.tolist() if isinstance(output_size, torch.Tensor) else output_size
        factors = factors_of(self.dims, scale_factors, scales_2, scales_3)
        if sizes is None:
            return operator.vec(fine, None, align_corners, list(factors)).to(x.dtype)
        if x.shape[0] == 0:
            return x.new_zeros((*x.shape[:2], *sizes))
        return operator.default(fine, [int(s) for s in sizes], align_corners, *factors).to(x.dtype)

    def infer(
        self,
        x: Value,
        output_size: Ints | Value | None,
        scale_factors: Floats | None,
        scales_2: float | None,
        scales_3: float | None,
        **_: Any,
    ) -> Any:
        if x.type is None or not x.has_rank or x.rank != self.dims + 2:
            return None
        if isinstance(output_size, tuple):
            return x.type.with_shape((*x.shape[:2], *output_size))
        if output_size is not None or scale_factors is None:
            return x.type.with_shape((*x.shape[:2], *[None] * self.dims))
        factors = factors_of(self.dims, scale_factors, scales_2, scales_3)
        outer = [
            resampling.size_after(s, f) if isinstance(s, int) and f else None
            for s, f in zip(x.shape[2:], factors, strict=True)
        ]
        return x.type.with_shape((*x.shape[:2], *outer))

    @decomposition()
    def gathers(
        self,
        g: Builder,
        x: Value,
        output_size: Ints | Value | None = None,
        align_corners: bool = False,
        scale_factors: Floats | None = None,
        scales_2: float | None = None,
        scales_3: float | None = None,
    ) -> Value:
        factors = factors_of(self.dims, scale_factors, scales_2, scales_3)
        targets = self._targets(g, x, output_size, factors)
        if places.is_empty(g.dim(x, 0), g.dim(x, 1), *targets):
            return g.constant_of_shape([g.dim(x, 0), g.dim(x, 1), *targets], 0.0, x)
        axes = [
            resampling.Axis(i + 2, g.dim(x, i + 2), target, factor, align_corners)
            for i, (target, factor) in enumerate(zip(targets, factors, strict=True))
        ]
        result = g.cast(x, places.wide(x))
        # Shrinking axes first: less is left to do.
        for axis in sorted(axes, key=_growth):
            result = resampling.resampled(g, result, axis, self.mode, self.antialias)
        known = [t if isinstance(t, int) else None for t in targets]
        return g.cast(g.retyped(result, (*x.shape[:2], *known)), x)

    def by_resize(
        self,
        g: Builder,
        x: Value,
        *,
        output_size: Ints | Value | None,
        align_corners: bool,
        scale_factors: Floats | None,
        scales_2: float | None,
        scales_3: float | None,
    ) -> Value:
        """onnxruntime's Resize; antialiased from opset 18 on."""
        factors = factors_of(self.dims, scale_factors, scales_2, scales_3)
        targets = self._targets(g, x, output_size, factors)
        data = g.cast(x, places.wide(x))
        attributes: dict[str, Any] = {"mode": self.mode}
        if self.antialias:
            attributes |= {"antialias": 1, "exclude_outside": 1}
            if self.mode == "cubic":
                attributes["cubic_coeff_a"] = -0.5
        coordinates = "align_corners" if align_corners else "half_pixel"
        nothing = None if g.opset >= 13 else g.const(np.zeros(0, np.float32))
        if all(factors) and not align_corners:
            scales = g.const(np.asarray([1.0, 1.0, *factors], np.float32))
            inputs: list[Value | None] = [nothing, scales]
        else:
            inputs = [nothing, nothing, g.sizes([g.dim(x, 0), g.dim(x, 1), *targets])]
        made: Value = g.op("Resize", data, *inputs, coordinate_transformation_mode=coordinates, **attributes)
        return g.cast(made, x)

    def _targets(
        self, g: Builder, x: Value, output_size: Ints | Value | None, factors: list[float | None]
    ) -> list[int | Value]:
        """The sizes of the result."""
        if x.rank != self.dims + 2:
            raise UnsupportedParameter(
                f"an input of rank {x.rank} is given, not {self.dims + 2}", where=g.where
            )
        if isinstance(output_size, tuple):
            if len(output_size) != self.dims:
                raise UnsupportedParameter(
                    f"{len(output_size)} sizes are given for {self.dims} axes", where=g.where
                )
            return list(output_size)
        if output_size is not None:
            return [g.gather(output_size, g.ints([i]), axis=0) for i in range(self.dims)]
        targets: list[int | Value] = []
        for i, factor in enumerate(factors):
            if factor is None:
                raise UnsupportedParameter("neither a size nor scales are given", where=g.where)
            size = g.dim(x, i + 2)
            if isinstance(size, int):
                targets.append(resampling.size_after(size, factor))
            else:
                targets.append(g.cast(g.floor(g.cast(size, 1) * factor), 7))
        return targets


def factors_of(dims: int, first: Any, second: float | None, third: float | None) -> list[float | None]:
    """A scale for each axis, None where there is none."""
    if first is None:
        return [None] * dims
    given = list(first) if isinstance(first, (tuple, list)) else [first]
    if len(given) != dims:
        given = [given[0], second, third][:dims]
    return [None if factor is None else _decimal(factor) for factor in given]


def _decimal(factor: float) -> float:
    """An attribute holds 0.9 in single precision, and 20 times that is below 18: the number that was meant."""
    single = np.float32(factor)
    return float(str(single)) if float(single) == factor else factor


def resize_serves(
    x: Value, output_size: Ints | Value | None, align_corners: bool, factors: list[float | None]
) -> bool:
    """Whether Resize, given either sizes or scales in single precision, comes to the sizes and the places meant."""
    if align_corners or not any(factors):
        return True
    if not all(factors):
        return False
    singles = [np.float32(f) for f in factors if f]
    if isinstance(output_size, tuple) or x.is_static:
        if not x.is_static:
            return False
        sizes = [int(s) for s in x.shape[2:] if isinstance(s, int)]
        meant = [resampling.size_after(s, f) for s, f in zip(sizes, factors, strict=True) if f]
        meant = list(output_size) if isinstance(output_size, tuple) else meant
        # Runtimes multiply in single or in double precision.
        return all(
            int(np.floor(np.float32(size) * single)) == target == resampling.size_after(size, float(single))
            for size, single, target in zip(sizes, singles, meant, strict=True)
        )
    return output_size is None and all(float(s) == f for s, f in zip(singles, factors, strict=True))


def _growth(axis: resampling.Axis) -> float:
    if isinstance(axis.size, int) and isinstance(axis.target, int):
        return axis.target / max(axis.size, 1)
    return axis.scale or 1.0
