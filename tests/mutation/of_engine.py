"""Mutations of what stands around the passes: splicing, names, functions, binding, builder, simplifier, stamp."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.mutation.mutation import Engine

if TYPE_CHECKING:
    from collections.abc import Iterator

_SPLICE = "rewriter/graph/splice.py"
_BIND = "rewriter/placeholder/binding.py"
_BUILDER = "rewriter/placeholder/builder.py"
_FUNCTIONS = "rewriter/graph/functions.py"

#: Two results; a constant or more; one that gives back its input; bodies that read outer values.
_TWO = "g (float[2, 6] x) => (float[2, 6] y, float[2, 6] z) { y, z = com.example.LogSigmoid(x) }"
_CONSTANTS = "g (float[2, 6] x) => (float[2, 6] y) { y = com.example.Gelu(x) }"
_SAME = "g (float[2, 6] x) => (float[2, 6] y) { y = com.example.Flip<dims: ints = []>(x) }"
_ROLL = "g (float[4, 6] x) => (float[4, 6] y) { y = com.example.Roll<shifts = [1], dims = [0]>(x) }"
_OPEN = "g (float[n, m] x) => (float[n, m] y) { y = com.example.Roll<shifts = [2], dims = [1]>(x) }"
_TWICE = (
    "g (float[4, 6] x) => (float[4, 6] y) { [same] u = com.example.Roll<shifts = [1], dims = [0]>(x) "
    "[same] y = com.example.Roll<shifts = [2], dims = [1]>(u) }"
)
_BODY = """g (float[2, 3, 5, 4] x, float[2, 3, 2, 2] at) => (float[2, 3, 3, 2] y) {
    y = com.example.GridSample<align_corners = 1>(x, at) }"""
_LOOP = """g (float[1, 3] x, int64 n) => (float[1, 3] y) {
    outer = Neg(x)
    c = Constant<value = bool {1}>()
    y = Loop(n, c, x) <body = b (int64 i, bool go, float[1, 3] v) => (bool again, float[1, 3] w) {
        again = Identity(go)
        a = com.example.Roll<shifts = [1], dims = [1]>(outer)
        w = Add(v, a) }> }"""
_CALLS = """g (float[4, 6] x) => (float[4, 6] y) { u = local.Block<by = [1]>(x) y = local.Block<by = [2]>(u) }
<domain: "local", opset_import: ["": 17, "com.example": 1]> Block <by> (a) => (b) {
    b = com.example.Roll<shifts: ints = @by, dims = [1]>(a) }"""
_DEFAULT = """g (float[4, 6] x) => (float[4, 6] y) { y = local.Block<by = [2]>(x) }
<domain: "local", opset_import: ["": 17, "com.example": 1]> Block <by: ints = [1]> (a) => (b) {
    b = com.example.Roll<shifts: ints = @by, dims = [1]>(a) }"""
_ATTENTION = """g (float[2, 4, 8] q, float[2, 4, 8] k, float[2, 4, 8] v) => (float[2, 4, 8] y) {
    y = com.example.ScaledDotProductAttention(q, k, v) }"""
_CELU = "g (float[2, 6] x) => (float[2, 6] y) { y = com.example.Celu<alpha = 0.5>(x) }"
_ELU = "g (float[2, 6] x) => (float[2, 6] y) { y = com.example.Elu<alpha = 1.5, input_scale = 0.5>(x) }"
_SUB = """g (float[4, 6] x) => (float[4, 6] y) {
    u = com.example.Roll<shifts = [1], dims = [0]>(x) v = Identity(u) y = Sub(v, x) }"""
_DECLARED = """g (float[4, 6] x) => (float[4, 6] y) <float[4, 6] u> {
    u = com.example.Roll<shifts = [1], dims = [0]>(x) y = Abs(u) }"""


def mutations() -> Iterator[Engine]:
    yield from _splice()
    yield from _graph()
    yield from _placeholder()
    yield from _after()


def _splice() -> Iterator[Engine]:
    yield Engine(
        "results are given the names of the others",
        "output order swapped",
        _SPLICE,
        'local = outputs[index] if index < len(outputs) else ""',
        "local = outputs[-1 - index]",
        _TWO,
    )
    yield Engine(
        "all constants have one name",
        "duplicated name",
        _SPLICE,
        "copy.name = mapping[tensor.name] = names.fresh(wish)",
        "copy.name = mapping[tensor.name] = wish",
        _CONSTANTS,
        codes=("mismatch", "cannot-verify"),
        because="two initializers of one name are invalid ONNX",
    )
    yield Engine(
        "an identity is left out",
        "dropped node",
        _SPLICE,
        '        parts.append(("Identity", _IDENTITY, [mapping[local]], [final]))\n',
        "",
        _SAME,
        codes=("mismatch", "cannot-verify", "interface-changed"),
        because="nothing computes the graph's output",
    )
    yield Engine(
        "nodes stand in the other order",
        "wrong order",
        _SPLICE,
        "order.extend((edit.index, offset) for offset in range(1, len(new)))",
        "order.extend((edit.index, -offset) for offset in range(1, len(new)))",
        _CONSTANTS,
        codes=("corrected",),
        because="a node before what it reads is invalid ONNX, which simplification puts in order",
    )
    yield Engine(
        "constants are left out",
        "dropped node",
        _SPLICE,
        "            graph.initializer.extend(edit.replacement.initializers)\n",
        "            pass\n",
        _CONSTANTS,
        codes=("mismatch", "cannot-verify"),
        because="a name that nothing makes is invalid ONNX",
    )
    yield Engine(
        "a body reads its outer values in the other order",
        "outer value captured wrongly",
        _SPLICE,
        "    inner = dict(mapping)\n    for value in graph.input:",
        "    inner = dict(zip(mapping, [mapping['at'], mapping['x'], *list(mapping.values())[2:]], strict=True))\n"
        "    for value in graph.input:",
        _BODY,
        codes=("mismatch", "cannot-verify"),
    )
    yield Engine(
        "constants lose their last axis",
        "wrong broadcast",
        _SPLICE,
        "        copy.name = mapping[tensor.name] = names.fresh(wish)\n",
        "        copy.name = mapping[tensor.name] = names.fresh(wish)\n        del copy.dims[-1:]\n",
        _ROLL,
        codes=("mismatch", "cannot-verify"),
        because="a tensor's payload must have the size that its dims say",
    )


def _graph() -> Iterator[Engine]:
    yield Engine(
        "names that are taken are given again",
        "duplicated name",
        "rewriter/graph/names.py",
        "if name in self._taken or not name:",
        "if not name:",
        _TWICE,
        codes=("mismatch", "cannot-verify"),
        because="two values of one name are invalid ONNX",
    )
    yield Engine(
        "calls share the first one's specialisation",
        "stale attribute",
        _FUNCTIONS,
        "tuple(sorted((name, a.SerializeToString(deterministic=True)) for name, a in attributes.items())),",
        "(),",
        _CALLS,
    )
    yield Engine(
        "a function's defaults hide what the call gives",
        "wrong attribute default",
        _FUNCTIONS,
        "attributes |= {a.name: a for a in node.attribute if a.name in declared}",
        "attributes = {a.name: a for a in node.attribute if a.name in declared} | attributes",
        _DEFAULT,
    )
    yield Engine(
        "sizes are taken in the other order",
        "stale shape",
        _FUNCTIONS,
        "known = [self._type(proto) for proto in types]",
        "known = [t if t is None or t.shape is None else t.with_shape(t.shape[::-1]) for t in "
        "map(self._type, types)]",
        _ROLL,
        codes=("mismatch", "interface-changed", "cannot-verify"),
    )
    yield Engine(
        "open sizes are taken for 5",
        "stale shape",
        _FUNCTIONS,
        "known = [self._type(proto) for proto in types]",
        "known = [t if t is None or t.shape is None else "
        "t.with_shape([5 if isinstance(d, str) else d for d in t.shape]) "
        "for t in map(self._type, types)]",
        _OPEN,
        codes=("mismatch", "cannot-verify"),
    )
    yield Engine(
        "declared types have their sizes in the other order",
        "stale shape",
        _SPLICE,
        "    value.type.CopyFrom(known.to_proto())\n    return value",
        "    value.type.CopyFrom(known.with_shape(known.shape[::-1]).to_proto())\n    return value",
        _DECLARED,
        codes=("corrected",),
        because="what is declared is not what the value is; simplification drops what inference contradicts",
    )


def _placeholder() -> Iterator[Engine]:
    yield Engine(
        "an attribute goes to the next parameter",
        "attribute bound to the wrong parameter",
        _BIND,
        "target = self.names.get(normal(attribute.name))",
        "target = {'shifts': 'dims', 'dims': 'shifts'}.get(attribute.name, self.names.get(normal(attribute.name)))",
        "g (float[4, 6] x) => (float[4, 6] y) { y = com.example.Roll<shifts = [1], dims = [0]>(x) }",
    )
    yield Engine(
        "tensors are bound in the other order",
        "swapped inputs",
        _BIND,
        "        free = [(index, name) for index, name in enumerate(self.inputs)]\n",
        "        free = [(index, name) for index, name in enumerate(self.inputs)][::-1]\n",
        _ATTENTION,
    )
    yield Engine(
        "parameters are rounded",
        "wrong rounding",
        "rewriter/placeholder/conversion.py",
        "    return float(value)\n",
        "    return float(round(value, 1))\n",
        "g (float[2, 6] x) => (float[2, 6] y) { y = com.example.Celu<alpha = 0.25>(x) }",
    )
    yield Engine(
        "what is not given is 2",
        "wrong attribute default",
        "rewriter/placeholder/signature.py",
        "return None if self.default is inspect.Parameter.empty else self.default",
        "return None if self.default is inspect.Parameter.empty else 2.0 if self.default == 1.0 else self.default",
        _ELU,
    )
    yield Engine(
        "constants of other types are the same",
        "wrong dtype constant",
        _BUILDER,
        "        known = self._constants.get(key)\n        if known is not None:\n            return known\n",
        "        key = (0, *key[1:2], key[2][:4])\n        known = self._constants.get(key)\n"
        "        if known is not None:\n            return known\n",
        "g (float[2, 3, 5, 4] x, float[2, 3, 2, 2] at) => (float[2, 3, 3, 2] y) {"
        ' y = com.example.GridSample<mode = "nearest">(x, at) }',
        codes=("mismatch", "pass-fault", "cannot-verify"),
        because="operators refuse operands of other types",
    )
    yield Engine(
        "a number on the left goes to the right",
        "swapped inputs",
        _BUILDER,
        "result = self.op(op_type, self.const(left, right), right)",
        "result = self.op(op_type, right, self.const(left, right))",
        "g (float[2, 3, 5, 4] x, float[2, 3, 2, 2] at) => (float[2, 3, 3, 2] y) {"
        ' y = com.example.GridSample<mode = "bilinear", padding_mode = "border">(x, at) }',
        opset=13,
    )
    yield Engine(
        "the last input is dropped",
        "optional input dropped",
        _BUILDER,
        "        while node.input and not node.input[-1]:\n            del node.input[-1]\n",
        "        while len(node.input) > 2:\n            del node.input[-1]\n",
        "g (float[2, 3, 4, 4] x) => (float[2, 3, 4, 6] y) {"
        " y = com.example.Pad<pad = [1, 1], value = 2.5>(x) }",
    )
    yield Engine(
        "attributes of 0 are left out",
        "wrong attribute default",
        _BUILDER,
        "attrs = {_strip_suffix(k): _plain(v) for k, v in attributes.items() if v is not None}",
        "attrs = {_strip_suffix(k): _plain(v) for k, v in attributes.items() if v}",
        "g (float[2, 4, 4] x) => (float[2, 4, 4] y) { y = com.example.Tril(x) }",
    )


def _after() -> Iterator[Engine]:
    reversed_inputs = (
        "rewriter/simplify/restore.py",
        "        target.input.extend(inputs)\n        outputs = [",
        "        target.input.extend(inputs[::-1] if target.op_type == 'Sub' else inputs)\n        outputs = [",
    )
    yield Engine(
        "simplified nodes read their inputs in the other order",
        "swapped inputs",
        *reversed_inputs,
        _SUB,
        codes=("refused",),
    )
    yield Engine(
        "simplified nodes read their inputs in the other order, and nobody compares",
        "swapped inputs",
        *reversed_inputs,
        _SUB,
        also=(
            "rewriter/simplify/driver.py",
            "        if self.equal is None:\n            return\n",
            "        if self.equal is not self:\n            return\n",
        ),
    )
    yield Engine(
        "the opset is raised",
        "wrong opset",
        "rewriter/stamp.py",
        "            kept.setdefault((domain, opset.version), copy)\n",
        "            copy.version += 0 if domain else 1\n            kept.setdefault((domain, opset.version), copy)\n",
        _ROLL,
        codes=("interface-changed", "mismatch"),
        because="another opset is another language, though these operators read alike in both",
    )
