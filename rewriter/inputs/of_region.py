"""Values for the inputs of one region, drawn by their types and as its pass draws them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from rewriter.execution.numbers import is_float
from rewriter.inputs.dims import ATTEMPTS, Sizes
from rewriter.inputs.draw import default_values, drawable, generator, within
from rewriter.inputs.examples import constrained, drawn_as, examples
from rewriter.types import INTEGERS, dtype_name

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    import numpy as np

    from rewriter.decompose import Region
    from rewriter.execution.numbers import Array
    from rewriter.types import TensorType
    from rewriter.verify.options import VerifyOptions

#: Ranges for integers of unknown meaning, from the least constrained on.
_INTEGER_RANGES = ((-5, 5), (0, 5), (0, 1), (0, 0))
#: Attempts that draw as the cases do, whatever sizes were tried.
_LAST = ATTEMPTS - 2


@dataclass(frozen=True)
class Drawn:
    """Values by name, and the sizes of the symbolic dims in them."""

    feeds: Mapping[str, Array]
    sizes: Mapping[str, int]
    number: int

    def describe(self) -> str:
        """``sample 0 (n=2): float32[2, 3]``."""
        sizes = ", ".join(f"{name}={size}" for name, size in self.sizes.items())
        shapes = ", ".join(f"{a.dtype}{list(a.shape)}" for a in self.feeds.values())
        return f"sample {self.number}" + (f" ({sizes})" if sizes else "") + f": {shapes}"


def drawn(
    region: Region, types: Mapping[str, TensorType], options: VerifyOptions, number: int
) -> Iterator[Drawn]:
    """Drawings of sample ``number`` for inputs of ``types``, likely ones first: take the first that is accepted."""
    sizes = sizes_of(types, options)
    drawer = Drawer(region, types, options)
    for attempt in range(ATTEMPTS):
        made = drawer.at(sizes, sizes.draw(number, attempt), number, attempt)
        if made is not None:
            yield made


def sizes_of(types: Mapping[str, TensorType], options: VerifyOptions) -> Sizes:
    """The open dims of ``types``, fixed where ``--dim`` names them."""
    names = set().union(*(Sizes({name: kind}).names for name, kind in types.items())) if types else set()
    return Sizes(types, {name: values for name, values in options.dims.items() if name in names})


class Drawer:
    """Draws what one region takes, at given sizes.

    ``limits`` are those of inputs that the cases of the pass do not draw: integers are drawn from all of them.
    """

    def __init__(
        self,
        region: Region,
        types: Mapping[str, TensorType],
        options: VerifyOptions,
        limits: Mapping[str, tuple[float, float]] | None = None,
    ) -> None:
        self.region, self.types, self.options, self.limits = region, types, options, limits or {}
        self.known = examples(region)
        self.constrained = constrained(region)

    def at(self, sizes: Sizes, chosen: Mapping[str, int], number: int, attempt: int) -> Drawn | None:
        """Values at the sizes ``chosen``; None where these fit no type, or the cases have none of such a shape."""
        feeds: dict[str, Array] = {}
        for position, (name, kind) in enumerate(self.types.items()):
            shape = sizes.shape(name, kind, chosen)
            if shape is None:
                return None
            # The name of an inner value may change between versions; its position does not.
            rng = generator(self.options.seed, number, f"{self.region.placeholder.pass_name()} {position}")
            # After those of the cases, whatever the types allow.
            last = attempt >= max(len(self.known), _LAST)
            draws = {} if last or not self.known else self.known[(number + attempt) % len(self.known)]
            draw = draws.get(name)
            with drawable(name, shape):
                made = None if draw is None else drawn_as(draw, rng, kind.dtype, shape)
                if made is None and name in self.constrained and not last:
                    return None
                feeds[name] = self._values(rng, name, kind.dtype, shape, attempt) if made is None else made
        return Drawn(feeds, chosen, number)

    def _values(
        self, rng: np.random.Generator, name: str, dtype: int, shape: tuple[int, ...], attempt: int
    ) -> Array:
        if dtype in INTEGERS:
            low, high = _INTEGER_RANGES[attempt % len(_INTEGER_RANGES)]
            if name in self.limits:
                low, high = (int(end) for end in self.limits[name])
            unsigned = dtype_name(dtype).startswith("uint")
            return within(rng, dtype, shape, max(low, 0) if unsigned else low, high)
        made = default_values(rng, dtype, shape)
        if name in self.limits and is_float(made.dtype) and made.dtype.kind != "c":
            return within(rng, dtype, shape, *self.limits[name])
        return made
