"""Whether two models that should be the same compute the same: before and after simplification."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rewriter.errors import CannotVerifyError
from rewriter.execution.cut import cut_unknown, same_cuts
from rewriter.execution.session import Refused, Session
from rewriter.execution.types import value_types
from rewriter.execution.weights import Weights
from rewriter.graph.constants import Constants
from rewriter.graph.scopes import main_scope
from rewriter.inputs.draw import inputs_of
from rewriter.verify.delivered import labelled
from rewriter.verify.options import VerifyOptions

if TYPE_CHECKING:
    from onnx import ModelProto

    from rewriter.storage import ModelFile


def equal(
    file: ModelFile, before: ModelProto, after: ModelProto, options: VerifyOptions | None = None
) -> str | None:
    """None where both skeletons of ``file`` compute the same, else why not.

    They are compared on the same drawn inputs, at two sizes at least of every open dim, both as they are written.
    What cannot be compared here is not equal: a simplification that nobody looked at is not worth having.
    """
    try:
        return _compare(Weights(file), before, after, options or VerifyOptions())
    except CannotVerifyError as error:
        return f"it could not be compared: {error.what}"


def _compare(weights: Weights, before: ModelProto, after: ModelProto, options: VerifyOptions) -> str | None:
    types = value_types(before)
    libraries = tuple(options.libraries.values())
    old, new = (cut_unknown(model, types, options.libraries) for model in (before, after))
    if not same_cuts(old, new):
        return "an operator that is kept was changed"
    try:
        reference = Session(
            weights, old.model, extra_outputs=old.probes.values(), optimise=False, libraries=libraries
        )
    except Refused as error:
        return f"it could not be compared: {error.what}"
    try:
        candidate = Session(
            weights, new.model, extra_outputs=new.probes.values(), optimise=False, libraries=libraries
        )
    except Refused as error:
        return f"the result does not load: {error.what}"
    constants = Constants(weights.file, main_scope(old.model))
    inputs = inputs_of(old.model, types, constants.find, options, extra=old.inputs)
    labels, counterparts = labelled(old), labelled(new)
    if labels.keys() != counterparts.keys():
        return "its outputs are others"
    for index in range(max(2, inputs.count) if inputs.given is None else 1):
        refusal = "no sizes fit the types of its inputs"
        for attempt in range(inputs.attempts):
            sample = inputs.draw(index, attempt)
            if sample is None:
                continue
            try:
                expected = reference.run(sample.feeds, list(labels.values()))
            except Refused as error:
                refusal = error.what
                continue
            break
        else:
            return f"it could not be compared: {refusal}"
        try:
            found = candidate.run(sample.feeds, list(counterparts.values()))
        except Refused as error:
            return f"the result refuses what the model accepted ({sample.describe()}): {error.what}"
        wanted = {name: expected[name] for name in labels.values()}
        given = {name: found[counterparts[label]] for label, name in labels.items()}
        problems = options.judgement.outputs(given, wanted, {})
        for label, name in labels.items():
            if name in problems:
                return f"{label} {problems[name]} ({sample.describe()})"
    return None
