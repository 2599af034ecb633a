"""Whether an operator means the same at two opsets, for what one node uses of it.

Schemas show most of it: attributes with their defaults, types, numbers of inputs.  What they do not show is in two
tables: values of attributes that came later than the attribute, and meanings that changed under one signature.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from onnx import AttributeProto, TensorProto, defs, helper

from rewriter.placeholder.standard import default

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from rewriter.types import TensorType

#: From which opset on a value of an attribute exists.
VALUES: Mapping[tuple[str, str, Any], int] = {
    ("Pad", "mode", b"wrap"): 19,
    ("Resize", "coordinate_transformation_mode", b"half_pixel_symmetric"): 19,
    ("ScatterND", "reduction", b"max"): 18,
    ("ScatterND", "reduction", b"min"): 18,
    ("ScatterElements", "reduction", b"max"): 18,
    ("ScatterElements", "reduction", b"min"): 18,
    ("GridSample", "mode", b"linear"): 20,
    ("GridSample", "mode", b"cubic"): 20,
}

#: Until which opset a value of an attribute exists.
OLD_VALUES: Mapping[tuple[str, str, Any], int] = {
    ("GridSample", "mode", b"bilinear"): 19,
    ("GridSample", "mode", b"bicubic"): 19,
    ("Resize", "coordinate_transformation_mode", b"tf_half_pixel_for_nn"): 12,
}

#: Opsets at which the meaning changed though nodes look the same, or at which the default of a new attribute is not
#: what the operator meant before.
MEANINGS: Mapping[str, tuple[int, ...]] = {
    "RoiAlign": (16,),
    "GroupNormalization": (21,),
    "Softmax": (13,),
    "LogSoftmax": (13,),
    "Hardmax": (13,),
    "DFT": (20,),
    "Split": (18,),
    "BatchNormalization": (9, 14),
    "GridSample": (20,),
    "Scan": (9,),
    "Mod": (28,),
    "BitShift": (28,),
    "Upsample": (9,),
    "Resize": (11,),
    "TopK": (10,),
    "Attention": (24,),
}

_FLOAT8 = (TensorProto.FLOAT8E4M3FN, TensorProto.FLOAT8E8M0)
#: These attributes speak of narrow floats only.
_NARROW_ONLY = frozenset({"saturate", "round_mode"})

Attributes = dict[str, AttributeProto]


@dataclass(frozen=True)
class Use:
    """What a node uses of its operator."""

    op_type: str
    attributes: Mapping[str, AttributeProto]
    #: Which inputs are given.
    given: tuple[bool, ...]
    outputs: int
    #: None where unknown.
    input_types: tuple[TensorType | None, ...]
    output_types: tuple[TensorType | None, ...]


@functools.cache
def schema(op_type: str, version: int) -> defs.OpSchema | None:
    """The operator of the default domain at ``version``; None where there is none or it is deprecated."""
    if not defs.has(op_type, version, ""):
        return None
    found = defs.get_schema(op_type, version, "")
    return None if found.deprecated else found


@functools.cache
def changed(op_type: str, version: int, target: int) -> bool:
    """Whether the operator has another version at ``target``, or none."""
    here, there = schema(op_type, version), schema(op_type, target)
    return here is None or there is None or here.since_version != there.since_version


def only_types(
    op_type: str, version: int, target: int
) -> tuple[tuple[frozenset[int], ...], tuple[frozenset[int], ...]] | None:
    """Element types of inputs and of results at ``target``, where nothing else of the operator differs there.

    None where more differs, or may.
    """
    here, there = schema(op_type, version), schema(op_type, target)
    if (
        here is None
        or there is None
        or op_type in MEANINGS
        or any(key[0] == op_type for key in (*VALUES, *OLD_VALUES))
    ):
        return None

    def form(found: defs.OpSchema) -> object:
        attributes = {
            name: (item.type, item.required, default(op_type, found.since_version, name))
            for name, item in found.attributes.items()
        }
        formals = [[(f.option, f.is_homogeneous) for f in given] for given in (found.inputs, found.outputs)]
        return attributes, formals, found.min_input, found.max_input, found.min_output, found.max_output

    if form(here) != form(there) or not there.inputs or not there.outputs:
        return None
    allowed = allowed_types(op_type, there.since_version)
    return (
        tuple(allowed[formal.type_str] for formal in there.inputs),
        tuple(allowed[formal.type_str] for formal in there.outputs),
    )


def same_form(use: Use, version: int, target: int) -> Attributes | str:
    """The attributes with which the node of opset ``version`` means the same at ``target``; else why it does not."""
    here, there = schema(use.op_type, version), schema(use.op_type, target)
    if there is None or here is None:
        return f"{use.op_type} does not exist at opset {target}"
    if here.since_version == there.since_version:
        return _types(use, target) or dict(use.attributes)
    low, high = sorted((here.since_version, there.since_version))
    if any(low < change <= high for change in MEANINGS.get(use.op_type, ())) and _concerned(use):
        return f"{use.op_type} means something else at opset {target}"
    problem = _counts(use, there) or _values(use, target)
    if problem:
        return problem
    attributes = _attributes(use, here, there)
    if isinstance(attributes, str):
        return attributes
    return _types(use, target) or attributes


def _concerned(use: Use) -> bool:
    """Whether a change of meaning touches this node."""
    kind = use.input_types[0].dtype if use.input_types and use.input_types[0] is not None else None
    floating = (TensorProto.FLOAT, TensorProto.FLOAT16, TensorProto.DOUBLE, TensorProto.BFLOAT16)
    if use.op_type == "Mod":
        fmod = use.attributes.get("fmod")
        return kind in floating and not (fmod is not None and fmod.i)
    if use.op_type == "BitShift":
        return kind in (TensorProto.INT8, TensorProto.INT16, TensorProto.INT32, TensorProto.INT64)
    if use.op_type == "Attention":
        causal = use.attributes.get("is_causal")
        return causal is not None and bool(causal.i)
    return True


def _counts(use: Use, there: defs.OpSchema) -> str:
    given = use.given
    while given and not given[-1]:
        given = given[:-1]
    if not there.min_input <= len(given) <= there.max_input:
        return f"{use.op_type} takes no {len(given)} inputs there"
    single = defs.OpSchema.FormalParameterOption.Single
    if any(not g and i < len(there.inputs) and there.inputs[i].option == single for i, g in enumerate(given)):
        return f"{use.op_type} has a required input there that is left out here"
    if use.outputs > there.max_output or use.outputs < there.min_output:
        return f"{use.op_type} has no {use.outputs} outputs there"
    return ""


def _values(use: Use, target: int) -> str:
    """Values of attributes that the target's version does not know."""
    for name, attribute in use.attributes.items():
        if attribute.type != AttributeProto.STRING:
            continue
        key = (use.op_type, name, attribute.s)
        if VALUES.get(key, 0) > target or target > OLD_VALUES.get(key, target):
            return f"{use.op_type} has no {name}={attribute.s.decode(errors='replace')} there"
    return ""


def _attributes(use: Use, here: defs.OpSchema, there: defs.OpSchema) -> Attributes | str:
    """The node's attributes in the target's form: later ones dropped at their default, changed defaults written."""
    kept: Attributes = {}
    for name, attribute in use.attributes.items():
        if name in there.attributes:
            kept[name] = attribute
        elif not _may_go(use, here, name, helper.get_attribute_value(attribute)):
            return f"{use.op_type} has no attribute {name} there"
    for name, wanted in there.attributes.items():
        if name in kept:
            continue
        if wanted.required:
            return f"{use.op_type} needs an attribute {name} there"
        meant = default(use.op_type, here.since_version, name)
        if meant is not None and meant != default(use.op_type, there.since_version, name):
            kept[name] = helper.make_attribute(name, meant)
    return kept


def _may_go(use: Use, here: defs.OpSchema, name: str, value: Any) -> bool:
    """Whether an attribute that the target lacks says nothing here."""
    if value == default(use.op_type, here.since_version, name):
        return True
    if name == "dilations":
        return set(value) == {1}
    if name in _NARROW_ONLY:
        result = use.output_types[0] if use.output_types else None
        return (
            result is not None
            and not _FLOAT8[0] <= result.dtype <= _FLOAT8[0] + 3
            and result.dtype != _FLOAT8[1]
        )
    if name == "stash_type":
        return use.input_types[0] is not None and use.input_types[0].dtype in (
            TensorProto.FLOAT,
            TensorProto.DOUBLE,
        )
    return name in ("consumed_inputs", "is_test")


def _types(use: Use, target: int) -> str:
    """The first type that the operator does not take at ``target``."""
    there = schema(use.op_type, target)
    assert there is not None
    allowed = allowed_types(use.op_type, there.since_version)
    for known, permitted in typed(use, there, allowed):
        if known is not None and known.dtype not in permitted:
            from rewriter.types import dtype_name

            return f"type {dtype_name(known.dtype)} is not taken by {use.op_type} there"
    return ""


def typed(
    use: Use, there: defs.OpSchema, allowed: Mapping[str, frozenset[int]]
) -> Iterator[tuple[TensorType | None, frozenset[int]]]:
    """Each type that the node has, inputs before outputs, with those that are taken there."""
    for formals, types in ((there.inputs, use.input_types), (there.outputs, use.output_types)):
        for position, known in enumerate(types):
            if formals:
                yield known, allowed[formals[min(position, len(formals) - 1)].type_str]


@functools.cache
def allowed_types(op_type: str, since: int) -> Mapping[str, frozenset[int]]:
    """The element types that each type parameter of the operator takes."""
    found = defs.get_schema(op_type, since, "")
    constraints = {item.type_param_str: list(item.allowed_type_strs) for item in found.type_constraints}
    for formal in (*found.inputs, *found.outputs):
        constraints.setdefault(formal.type_str, [formal.type_str])
    return {name: frozenset(_dtypes(texts)) for name, texts in constraints.items()}


def _dtypes(texts: Sequence[str]) -> Iterator[int]:
    for text in texts:
        if text.startswith("tensor("):
            yield int(TensorProto.DataType.Value(text[7:-1].upper()))
