"""Every ONNX node test brought to older and newer opsets, judged by the test's recorded results.

    python benchmarks/lowering.py [--to 13,11,17] [--only NAME] [--refused] [--peer] [--markdown]

A test is judged by ``onnx.checker``, then onnxruntime (graph optimisations off), else onnx's reference evaluator.
Results: right; evaluator (onnxruntime computes something else, the evaluator agrees); wrong; invalid (the checker
refuses it); refused (an error of ours); random (nothing to compare).  What the original itself does not compute is
counted apart ("original too").  The evaluator is not believed on Softmax, LogSoftmax and RoiAlign, whose opset it
ignores.
"""

from __future__ import annotations

import argparse
import collections
import sys
import time
import warnings
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx
import onnxruntime as ort
from onnx import numpy_helper
from onnx.backend.test.case.node import collect_testcases
from onnx.reference import ReferenceEvaluator

#: Tests of random operators.
RANDOM = ("bernoulli", "training_dropout", "dropout_default_mask_ratio_training")
#: The evaluator takes these at any opset for what they are now.
NOT_BELIEVED = {"Softmax": 13, "LogSoftmax": 13, "RoiAlign": 16}
#: Element types that an opset cannot hold at all, by the opset that brought them.
ABSENT_TYPES = {17: 19, 18: 19, 19: 19, 20: 19, 21: 21, 22: 21, 23: 23, 24: 24, 25: 25, 26: 25, 16: 13}


@dataclass
class Tally:
    """What became of the tests at one target."""

    counts: collections.Counter[str] = field(default_factory=collections.Counter)
    numbers: collections.Counter[str] = field(default_factory=collections.Counter)
    reasons: dict[str, list[str]] = field(default_factory=lambda: collections.defaultdict(list))
    bad: list[str] = field(default_factory=list)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--to", default="13,11,17")
    parser.add_argument("--only", default="")
    parser.add_argument("--refused", action="store_true", help="list what was refused, and why")
    parser.add_argument("--peer", action="store_true", help="onnx.version_converter besides")
    parser.add_argument("--markdown", action="store_true", help="the table of docs/targets.md")
    asked = parser.parse_args()
    warnings.filterwarnings("ignore")
    ort.set_default_logger_severity(4)
    tests = [test for test in collect_testcases(None) if asked.only in test.name]
    rows = []
    for target in [int(part) for part in asked.to.split(",")]:
        for peer in (False, True) if asked.peer else (False,):
            started = time.perf_counter()
            tally = run(tests, target, peer)
            seconds = time.perf_counter() - started
            rows.append((target, peer, tally))
            show(target, peer, tally, seconds, asked.refused)
    if asked.markdown:
        print(markdown(rows))


def run(tests: list[Any], target: int, peer: bool) -> Tally:
    """Every test of another opset than ``target``, brought to it: older ones up, newer ones down."""
    tally = Tally()
    for test in tests:
        version = opset_of(test.model)
        if version is None or version == target or (version < target and not 7 <= version <= 13):
            continue
        if version < target and target < 21:
            continue
        in_numbers = has_answer(test, target)
        outcome, reason = one(test, target, peer)
        if outcome in ("wrong", "invalid", "evaluator") and agrees(test, test.model)[0] != "right":
            outcome = "original too"
        tally.counts[outcome] += 1
        if in_numbers:
            tally.numbers[outcome] += 1
        if outcome == "refused":
            tally.reasons[("" if in_numbers else "(not in numbers) ") + reason].append(test.name)
        elif outcome in ("wrong", "invalid", "evaluator"):
            tally.bad.append(f"{outcome}: {test.name}: {reason}")
    return tally


def one(test: Any, target: int, peer: bool) -> tuple[str, str]:
    """The outcome of one test, and a reason."""
    try:
        lowered = by_converter(test.model, target) if peer else lower(test.model, target)
    except Exception as error:  # noqa: BLE001  (a refusal, or a fault of ours: both are listed)
        return "refused", f"{type(error).__name__}: {getattr(error, 'what', error)}"[:300]
    try:
        onnx.checker.check_model(lowered, full_check=False)
    except Exception as error:  # noqa: BLE001
        return "invalid", str(error).split("\n")[0][:200]
    if any(name in test.name for name in RANDOM):
        return "random", ""
    return agrees(test, lowered)


def lower(model: onnx.ModelProto, target: int) -> onnx.ModelProto:
    """Our way, without simplification and proof."""
    from rewriter.decompose import decompose
    from rewriter.lower import Target, at_target
    from rewriter.placeholder.registry import Selection
    from rewriter.source import open_source

    if not _selection:
        _selection.append(Selection.load("auto"))
    with open_source(model) as file:
        decompose(file, at_target(_selection[0], Target(target), opset_of(model) or target))
        return file.hydrate(file.model)


_selection: list[Any] = []


def by_converter(model: onnx.ModelProto, target: int) -> onnx.ModelProto:
    """onnx's own way."""
    from onnx import version_converter

    return version_converter.convert_version(model, target)


def agrees(test: Any, model: onnx.ModelProto) -> tuple[str, str]:
    """Whether ``model`` gives the recorded results."""
    problem = ""
    try:
        options = ort.SessionOptions()
        options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
        options.intra_op_num_threads = 1
        options.log_severity_level = 4
        session = ort.InferenceSession(model.SerializeToString(), options, ["CPUExecutionProvider"])
        names = [item.name for item in session.get_inputs()]
        problem = judge(test, lambda feeds: session.run(None, feeds), names)
        if not problem:
            return "right", ""
    except Exception as error:  # noqa: BLE001
        problem = f"onnxruntime: {str(error).splitlines()[0][:160]}"
    try:
        evaluator = ReferenceEvaluator(model)
        other = judge(test, lambda feeds: evaluator.run(None, feeds), evaluator.input_names)
    except Exception as error:  # noqa: BLE001
        other = f"evaluator: {type(error).__name__}: {str(error).splitlines()[0][:160] if str(error) else ''}"
    if other:
        return "wrong", f"{problem} | {other}"
    if problem.startswith("onnxruntime:"):
        version = opset_of(model) or 0
        believed = all(version >= NOT_BELIEVED.get(node.op_type, 0) for node in model.graph.node)
        return ("right", "") if believed else ("evaluator", problem)
    return "evaluator", problem


def judge(test: Any, call: Any, names: list[str]) -> str:
    """What is wrong with the results, in a clause."""
    for inputs, outputs in test.data_sets:
        feeds = {name: array_of(item) for name, item in zip(names, inputs, strict=False)}
        for position, (actual, expected) in enumerate(zip(call(feeds), outputs, strict=True)):
            problem = differs(actual, array_of(expected))
            if problem:
                return f"output {position}: {problem}"
    return ""


def array_of(item: Any) -> Any:
    if isinstance(item, onnx.TensorProto):
        return numpy_helper.to_array(item)
    if isinstance(item, (list, tuple)):
        return [array_of(part) for part in item]
    return item if item is None or isinstance(item, (dict, str)) else np.asarray(item)


def differs(actual: Any, expected: Any) -> str:
    """How two results differ, in a clause."""
    if isinstance(expected, list):
        if not isinstance(actual, list) or len(actual) != len(expected):
            return "another sequence"
        return next((p for a, b in zip(actual, expected, strict=True) if (p := differs(a, b))), "")
    if expected is None or isinstance(expected, (dict, str)):
        return "" if actual == expected else "another value"
    actual = np.asarray(actual)
    if actual.shape != expected.shape:
        return f"shape {actual.shape}, expected {expected.shape}"
    if actual.dtype != expected.dtype:
        return f"dtype {actual.dtype}, expected {expected.dtype}"
    if expected.dtype.kind in "OUSb":
        return "" if (actual == expected).all() else "other values"
    narrow = expected.dtype.itemsize < 4 and expected.dtype.kind not in "iu"
    a, b = actual.astype(np.float64), expected.astype(np.float64)
    if expected.dtype.kind == "c":
        a, b = actual, expected
    rtol, atol = (1e-2, 2e-3) if narrow else (1e-3, 1e-5)
    return (
        "" if np.allclose(a, b, rtol, atol, equal_nan=True) else f"values, by {np.nanmax(np.abs(a - b)):.3g}"
    )


def opset_of(model: onnx.ModelProto) -> int | None:
    found = [item.version for item in model.opset_import if item.domain in ("", "ai.onnx")]
    return found[0] if found else None


def has_answer(test: Any, target: int) -> bool:
    """Whether the test's answer can be written in numbers at ``target``: no strings, images, optionals, or types
    that the opset lacks."""
    known = types_at(target)
    graph = test.model.graph
    if any(value.type.WhichOneof("value") == "optional_type" for value in (*graph.input, *graph.output)):
        return False
    if any(
        node.op_type in ("ImageDecoder", "BitCast") and node.op_type == "ImageDecoder" for node in graph.node
    ):
        return False
    types = {elem_type(value.type) for value in (*graph.input, *graph.output)}
    types |= {a.i for node in graph.node for a in node.attribute if a.name == "to" and node.op_type == "Cast"}
    return types <= known


def elem_type(known: onnx.TypeProto) -> int:
    kind = known.WhichOneof("value")
    if kind == "sequence_type":
        return elem_type(known.sequence_type.elem_type)
    return known.tensor_type.elem_type if kind == "tensor_type" else 0


def types_at(target: int) -> set[int]:
    """Element types that Cast knows at ``target``, without strings."""
    schema = onnx.defs.get_schema("Cast", target)
    texts = [t for c in schema.type_constraints for t in c.allowed_type_strs]
    return {onnx.TensorProto.DataType.Value(t[7:-1].upper()) for t in texts if t != "tensor(string)"}


def show(target: int, peer: bool, tally: Tally, seconds: float, refused: bool) -> None:
    """One target's counts, and what went wrong."""
    total, numbers = sum(tally.counts.values()), judged(tally)
    who = "onnx.version_converter" if peer else "rewrite"
    right = tally.numbers["right"]
    print(f"to {target} by {who}: {total} tests in {seconds:.0f} s: {dict(tally.counts)}")
    print(
        f"   {numbers} have an answer in numbers: {right} right ({100 * right / max(1, numbers):.1f}%)",
        dict(tally.numbers),
    )
    for line in tally.bad[:60]:
        print("  ", line)
    if refused:
        for reason, names in sorted(tally.reasons.items(), key=lambda item: -len(item[1])):
            print(f"   {len(names):4} {reason[:170]}  {' '.join(names[:3])}")
    sys.stdout.flush()


def judged(tally: Tally) -> int:
    """Tests with an answer in numbers, without random ones and those that the original does not pass either."""
    return sum(tally.numbers.values()) - tally.numbers["random"] - tally.numbers["original too"]


def markdown(rows: list[tuple[int, bool, Tally]]) -> str:
    """The table of docs/targets.md."""
    lines = [
        "| to | by | tests | right | right of those in numbers | wrong | invalid | refused | evaluator only "
        "| original too | random |",
        "|---|---|---|---|---|---|---|---|---|---|---|",
    ]
    for target, peer, tally in rows:
        c, n = tally.counts, tally.numbers
        share = f"{n['right']} of {judged(tally)} ({100 * n['right'] / max(1, judged(tally)):.1f}%)"
        who = "`onnx.version_converter`" if peer else "`rewrite`"
        lines.append(
            f"| {target} | {who} | {sum(c.values())} | {c['right']} | {share} | {c['wrong']} | {c['invalid']} "
            f"| {c['refused']} | {c['evaluator']} | {c['original too']} | {c['random']} |"
        )
    return "\n".join(lines)


if __name__ == "__main__":
    main()
