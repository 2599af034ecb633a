"""Regions in bodies and functions, each proved as a model of its own on drawn inputs.

What happens in a body cannot be looked at from outside, and a branch may not even run.  The region's nodes are taken
from the finished model as they stand, run on inputs of the types that were inferred, at several sizes, and compared
with the reference.  Regions that are the same need one proof.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from onnx import TensorProto

from rewriter.errors import CannotVerifyError, MismatchError
from rewriter.placeholder.binding import Ref
from rewriter.placeholder.case import TensorSpec
from rewriter.types import TensorType, dtype_name
from rewriter.verify.dims import ATTEMPTS, Sizes
from rewriter.verify.inputs import INTEGERS, default_values, generator, within
from rewriter.verify.proof import ALLOW, NO_REFERENCE, Checked, RegionResult
from rewriter.verify.reference import ReferenceRefused, check, evaluate
from rewriter.verify.regions import Index, outputs_of, standalone, tensors_of
from rewriter.verify.session import Refused, Session

if TYPE_CHECKING:
    from collections.abc import Mapping

    from onnx import ModelProto

    from rewriter.decompose import Region
    from rewriter.graph.scopes import ScopeRef
    from rewriter.placeholder.case import Draw
    from rewriter.placeholder.contract import Placeholder
    from rewriter.verify.numbers import Array
    from rewriter.verify.options import VerifyOptions
    from rewriter.verify.weights import Weights

#: Ranges for integers of unknown meaning, from the least constrained on.
_INTEGER_RANGES = ((-5, 5), (0, 5), (0, 1), (0, 0))


class AloneProver:
    """Proves regions of one model one by one, and remembers what it proved."""

    def __init__(self, weights: Weights, model: ModelProto, options: VerifyOptions) -> None:
        self.weights = weights
        self.model = model
        self.options = options
        self._indexes: dict[ScopeRef, Index] = {}
        self._proved: dict[Any, RegionResult] = {}

    def prove(self, region: Region, result: RegionResult) -> None:
        """Fill in ``result``; MismatchError where the region is wrong."""
        types = tensors_of(region)
        unknown = [name for name, kind in types.items() if kind is None or kind.shape is None]
        if unknown:
            result.leave_unproved(f"the type of its input '{unknown[0]}' is unknown")
            return
        known = {name: kind for name, kind in types.items() if kind is not None}
        index = self._index(region.scope)
        part = index.slice(known, outputs_of(region))
        if part.loose:
            result.leave_unproved(f"it reads '{part.loose[0]}', whose type is unknown")
            return
        model = standalone(index, known, outputs_of(region), part)
        key = self._key(region, known, model)
        if key in self._proved:
            earlier = self._proved[key]
            result.how = "as another" if earlier.is_proved else "unproved"
            result.outputs, result.reason, result.remedy = earlier.outputs, earlier.reason, earlier.remedy
            return
        result.how = "alone"
        self._run(region, known, model, result)
        self._proved[key] = result

    def _index(self, ref: ScopeRef) -> Index:
        if ref not in self._indexes:
            self._indexes[ref] = Index(self.model, ref)
        return self._indexes[ref]

    def _key(self, region: Region, types: Mapping[str, TensorType], model: ModelProto) -> Any:
        """What makes two regions the same: names do not matter, everything else does."""
        names = {name: f"in{i}" for i, name in enumerate(types)}

        def renamed(name: str) -> str:
            return names.setdefault(name, f"v{len(names)}") if name else ""

        nodes = []
        for node in model.graph.node:
            copy = type(node)()
            copy.op_type, copy.domain, copy.overload = node.op_type, node.domain, node.overload
            copy.attribute.extend(node.attribute)
            copy.input.extend(renamed(name) for name in node.input)
            copy.output.extend(renamed(name) for name in node.output)
            nodes.append(copy.SerializeToString(deterministic=True))
        tensors = []
        for tensor in model.graph.initializer:
            anonymous = TensorProto()
            anonymous.CopyFrom(tensor)
            anonymous.name = renamed(tensor.name)
            tensors.append(anonymous.SerializeToString(deterministic=True))
        return (
            type(region.placeholder),
            region.bound.describe(),
            tuple(types.values()),
            tuple(nodes),
            tuple(sorted(tensors)),
            tuple(renamed(name) for name in outputs_of(region)),
            tuple(sorted(self._index(region.scope).opsets.items())),
        )

    def _run(
        self, region: Region, types: Mapping[str, TensorType], model: ModelProto, result: RegionResult
    ) -> None:
        names = outputs_of(region)
        result.outputs = [Checked(name) for name in names]
        try:
            session = Session(
                self.weights, model, optimise=False, libraries=tuple(self.options.libraries.values())
            )
        except Refused as error:
            raise MismatchError(
                f"the decomposition '{region.decomposition}' is no valid ONNX: {error.what}",
                where=region.where,
                remedy=f"correct pass '{region.placeholder.pass_name()}'",
            ) from error
        except CannotVerifyError as error:
            error.where = error.where or region.where
            raise
        samples = self.options.samples if types else 1
        for number in range(samples):
            if not self._sample(region, types, session, number, result):
                return

    def _sample(
        self,
        region: Region,
        types: Mapping[str, TensorType],
        session: Session,
        number: int,
        result: RegionResult,
    ) -> bool:
        """Prove one sample; False where ``result`` says why it stays unproved."""
        names = set().union(*(Sizes({name: kind}).names for name, kind in types.items())) if types else set()
        sizes = Sizes(types, {name: values for name, values in self.options.dims.items() if name in names})
        draws = _draws(region.placeholder, region)
        refusal = ""
        for attempt in range(ATTEMPTS):
            chosen = sizes.draw(number, attempt)
            feeds: dict[str, Array] = {}
            for position, (name, kind) in enumerate(types.items()):
                shape = sizes.shape(name, kind, chosen)
                if shape is None:
                    break
                # The name of an inner value may change between versions; its position does not.
                rng = generator(self.options.seed, number, f"{region.placeholder.pass_name()} {position}")
                feeds[name] = _values(rng, kind.dtype, shape, draws.get(name), attempt)
            if len(feeds) < len(types):
                continue
            try:
                expected = evaluate(region.placeholder, region.bound, lambda ref, f=feeds: _value(ref, f))  # type: ignore[misc]
            except ReferenceRefused as error:
                refusal = error.what
                continue
            except TypeError as error:
                result.leave_unproved(str(error), NO_REFERENCE)
                return False
            described = ", ".join(f"{name}={size}" for name, size in chosen.items())
            self._compare(
                region,
                session,
                feeds,
                expected,
                result,
                f"sample {number}" + (f" ({described})" if described else ""),
            )
            return True
        if refusal:
            result.leave_unproved(f"its reference refused every drawn input: {refusal}", ALLOW)
        else:
            result.leave_unproved("no sizes fit its types", ALLOW)
        return False

    def _compare(
        self,
        region: Region,
        session: Session,
        feeds: Mapping[str, Array],
        expected: list[Array | None],
        result: RegionResult,
        sample: str,
    ) -> None:
        names = outputs_of(region)
        pass_name = region.placeholder.pass_name()
        shapes = ", ".join(f"{a.dtype}{list(a.shape)}" for a in feeds.values())
        try:
            found = session.run(feeds)
        except Refused as error:
            raise MismatchError(
                f"{error.what}; PyTorch accepts them ({sample}: {shapes})",
                where=region.where,
                remedy=f"correct the decomposition '{region.decomposition}' of pass '{pass_name}'",
            ) from error
        values = {
            name.removesuffix(":out") if name not in names else name: value for name, value in found.items()
        }
        actual = [values.get(name) if name else None for name in names]
        problem = check(region.placeholder, names, actual, expected, result.outputs)
        if problem is not None:
            raise mismatch(region, problem, f"{sample}: {shapes}")


def mismatch(region: Region, problem: str, sample: str) -> MismatchError:
    return MismatchError(
        f"differs from PyTorch: {problem} ({sample})",
        where=region.where,
        remedy=f"correct the decomposition '{region.decomposition}' of pass '{region.placeholder.pass_name()}' or its "
        "reference; nothing was delivered",
    )


def _value(ref: Ref, feeds: Mapping[str, Array]) -> Array:
    if ref.constant is not None:
        return ref.constant
    if ref.name not in feeds:
        raise CannotVerifyError(f"the argument '{ref.name}' of a region has no value")
    return feeds[ref.name]


def _draws(placeholder: Placeholder, region: Region) -> dict[str, Draw]:
    """How the pass itself draws its tensor arguments (boxes that overlap, not noise): that of its first case."""
    found: dict[str, Draw] = {}
    by_parameter: dict[str, TensorSpec] = {}
    for case in placeholder.cases():
        for name, spec in case.arguments(placeholder.signature.names).items():
            if isinstance(spec, TensorSpec) and spec.draw is not None:
                by_parameter.setdefault(name, spec)
    for name, argument in region.bound.arguments.items():
        spec = by_parameter.get(name)
        if isinstance(argument, Ref) and spec is not None and spec.draw is not None:
            same = argument.type is not None and dtype_name(argument.type.dtype) == spec.dtype
            if same or spec.varies:
                found[argument.name] = spec.draw
    return found


def _values(
    rng: np.random.Generator, dtype: int, shape: tuple[int, ...], draw: Draw | None, attempt: int
) -> Array:
    if draw is not None:
        from onnx import helper

        return np.asarray(draw(rng, shape)).reshape(shape).astype(helper.tensor_dtype_to_np_dtype(dtype))
    if dtype in INTEGERS:
        low, high = _INTEGER_RANGES[attempt % len(_INTEGER_RANGES)]
        unsigned = dtype_name(dtype).startswith("uint")
        return within(rng, dtype, shape, max(low, 0) if unsigned else low, high)
    return default_values(rng, dtype, shape)
