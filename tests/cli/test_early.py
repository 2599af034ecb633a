"""Slips in what to verify with are told before any pass runs, and what would say nothing is refused."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import rewriter
from rewriter import pipeline
from tests.texts import ROLL, parse, write

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.cli.conftest import Outcome

    Rewrite = Callable[..., Outcome]


@pytest.fixture(autouse=True)
def no_pass_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    def forbidden(*_: Any, **__: Any) -> None:
        raise AssertionError("the passes ran")

    monkeypatch.setattr(pipeline, "decompose", forbidden)


@pytest.mark.parametrize(
    ("flags", "told"),
    [
        (["--dim", "M=1"], "the open dims are: N"),
        (["--dim", "n=1"], "no input has a dim of that name"),
        (["--dim", "batc=1"], "did you mean 'batch'?"),
        (["--input-range", "input_id=0:9"], "did you mean 'input_ids'?"),
        (["--input-range", "input_ids=0.2:0.7"], "no int64 lies between"),
    ],
)
def test_a_dim_or_range_of_another_name(
    rewrite: Rewrite, tmp_path: Path, flags: list[str], told: str
) -> None:
    text = ROLL.replace("x) =>", "x, int64[batch] input_ids) =>")
    done = rewrite(write(tmp_path / "in.onnx", text), tmp_path / "out.onnx", *flags)
    assert done.code == 2
    assert told in done.err


@pytest.mark.parametrize(
    ("arrays", "told"),
    [
        ({"y": np.zeros((1, 6, 4), np.float32)}, "has no array for 'x'"),
        (
            {"x": np.zeros((1, 6, 4), np.float32), "z": np.zeros(1)},
            "has 'z', which the model has no input for",
        ),
        ({"x": np.zeros((1, 6, 4))}, "'x' is float64, the model takes float32"),
    ],
)
def test_given_inputs_of_other_names_or_types(
    rewrite: Rewrite, roll: Path, arrays: dict[str, Any], told: str
) -> None:
    file = roll.with_name("in.npz")
    np.savez(file, **arrays)
    done = rewrite(roll, roll.with_name("out.onnx"), "--inputs", file)
    assert done.code == 2
    assert told in done.err
    with pytest.raises(rewriter.errors.UsageError, match="--inputs"):
        rewriter.rewrite(parse(ROLL), inputs=arrays)


@pytest.mark.parametrize(
    "flags",
    [
        ["--samples", "2"],
        ["--seed", "0"],
        ["--inputs", "in.npz"],
        ["--input-range", "x=0:1"],
        ["--dim", "N=2"],
        ["--atol", "0.1"],
        ["--rtol", "0.1"],
        ["--compare", "y=detections"],
        ["--against", "m:build"],
        ["--allow-unproved"],
        ["--runtimes", "tract"],
        ["--check-gradients"],
    ],
    ids=lambda flags: flags[0],
)
def test_nothing_is_verified_with_it(rewrite: Rewrite, roll: Path, flags: list[str]) -> None:
    done = rewrite(roll, roll.with_name("out.onnx"), "--no-verify", *flags)
    assert done.code == 2
    assert f"{flags[0]}: it says how to verify, and --no-verify compares nothing" in done.err


def test_the_call_refuses_the_same() -> None:
    with pytest.raises(rewriter.errors.UsageError, match="--samples and --dim: they say how to verify"):
        rewriter.rewrite(parse(ROLL), verify=False, samples=2, dims={"N": 3})
