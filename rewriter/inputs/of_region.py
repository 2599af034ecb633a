"""Values for the inputs of one region, drawn by their types and as its pass draws them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from rewriter.inputs.dims import ATTEMPTS, Sizes
from rewriter.inputs.draw import default_values, drawable, generator, within
from rewriter.inputs.examples import drawn_as, examples
from rewriter.types import INTEGERS, dtype_name

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    import numpy as np

    from rewriter.decompose import Region
    from rewriter.execution.numbers import Array
    from rewriter.placeholder.case import Draw
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
    names = set().union(*(Sizes({name: kind}).names for name, kind in types.items())) if types else set()
    sizes = Sizes(types, {name: values for name, values in options.dims.items() if name in names})
    known = examples(region)
    for attempt in range(ATTEMPTS):
        chosen = sizes.draw(number, attempt)
        feeds: dict[str, Array] = {}
        for position, (name, kind) in enumerate(types.items()):
            shape = sizes.shape(name, kind, chosen)
            if shape is None:
                break
            # The name of an inner value may change between versions; its position does not.
            rng = generator(options.seed, number, f"{region.placeholder.pass_name()} {position}")
            # After those of the cases, whatever the types allow.
            draws = (
                known[(number + attempt) % len(known)] if attempt < max(len(known), _LAST) and known else {}
            )
            with drawable(name, shape):
                feeds[name] = _values(rng, kind.dtype, shape, draws.get(name), attempt)
        else:
            yield Drawn(feeds, chosen, number)


def _values(
    rng: np.random.Generator, dtype: int, shape: tuple[int, ...], draw: Draw | None, attempt: int
) -> Array:
    made = None if draw is None else drawn_as(draw, rng, dtype, shape)
    if made is not None:
        return made
    if dtype in INTEGERS:
        low, high = _INTEGER_RANGES[attempt % len(_INTEGER_RANGES)]
        unsigned = dtype_name(dtype).startswith("uint")
        return within(rng, dtype, shape, max(low, 0) if unsigned else low, high)
    return default_values(rng, dtype, shape)
