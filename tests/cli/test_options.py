"""Bad usage is exit code 2 and one message; the forms of the options are read exactly."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click
import pytest
from click import Context, Option

from rewriter.cli import command
from rewriter.help import HELP, SECTIONS
from rewriter.options import Bytes, Library, Range, Sizes, merged

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.cli.conftest import Outcome


@pytest.mark.parametrize(
    ("form", "text", "expected"),
    [
        (Range(), "ids=0:30521", ("ids", (0, 30521))),
        (Range(), "x=-1.5:1e3", ("x", (-1.5, 1000.0))),
        (Range(), "a=b=-3:-1", ("a=b", (-3, -1))),
        (Sizes(), "batch=1,3", ("batch", (1, 3))),
        (Sizes(), "batch=7", ("batch", (7,))),
        (Bytes(), "512M", 512 << 20),
        (Bytes(), "4G", 4 << 30),
        (Bytes(), "4GB", 4 << 30),
        (Bytes(), "1000", 1000),
    ],
)
def test_read(form: click.ParamType, text: str, expected: object) -> None:
    assert form.convert(text, None, None) == expected


def test_read_library() -> None:
    domain, path = Library().convert("com.example=dir/libmyop.so", None, None)
    assert (domain, str(path)) == ("com.example", "dir/libmyop.so")


@pytest.mark.parametrize(
    ("form", "text"),
    [
        (Range(), "ids"),
        (Range(), "ids=5"),
        (Range(), "ids=5:1"),
        (Range(), "=0:1"),
        (Range(), "ids=a:b"),
        (Range(), "ids=nan:1"),
        (Sizes(), "batch"),
        (Sizes(), "batch=-1"),
        (Sizes(), "batch=1,"),
        (Sizes(), "=1"),
        (Library(), "com.example"),
        (Library(), "=x.so"),
        (Bytes(), "much"),
        (Bytes(), "0"),
        (Bytes(), "-1G"),
    ],
)
def test_refused(form: click.ParamType, text: str) -> None:
    with pytest.raises(click.BadParameter, match="not of the form"):
        form.convert(text, None, None)


def test_the_same_name_twice_is_refused() -> None:
    assert merged((("a", 1), ("b", 2)), "--dim") == {"a": 1, "b": 2}
    with pytest.raises(click.BadParameter, match="twice"):
        merged((("a", 1), ("a", 2)), "--dim")


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ((), "no model given"),
        (("--nonsense",), "--nonsense"),
        (("IN", "OUT", "more"), "more"),
        (("IN", "OUT", "--samples", "0"), "samples"),
        (("IN", "OUT", "--samples", "many"), "samples"),
        (("IN", "OUT", "--dim", "batch"), "DIM=SIZE"),
        (("IN", "OUT", "--dim", "n=1", "--dim", "n=2"), "twice"),
        (("IN", "OUT", "--input-range", "x"), "NAME=LOW:HIGH"),
        (("IN", "OUT", "--library", "x"), "DOMAIN=FILE"),
        (("IN", "OUT", "--library", "com.example=/nonexistent.so"), "com.example"),
        (("IN", "OUT", "--passes", "rol"), "roll"),
        (("IN", "OUT", "--passes", "./nothing.py"), "nothing.py"),
        (("IN", "OUT", "--bind", "nonsense"), "nonsense"),
        (("IN", "OUT", "--report", "OUT"), "--report would overwrite"),
        (("IN", "--report", "IN"), "--report would overwrite"),
        (("--list", "IN"), "--list takes no model"),
        (("--list", "--report", "r.json"), "--list writes no report"),
        (("IN", "--library", "com.example=IN"), "--library says nothing to an inspection"),
        (("IN", "OUT", "--inputs", "x.npz", "--dim", "N=3"), "--inputs stands without --dim"),
        (("IN", "OUT", "--inputs", "x.npz", "--input-range", "x=0:1"), "--inputs stands without --dim"),
    ],
)
def test_bad_usage(
    rewrite: Callable[..., Outcome], roll: Path, arguments: tuple[str, ...], says: str
) -> None:
    before = roll.read_bytes()
    target = roll.with_name("out.onnx")
    done = rewrite(*({"IN": roll, "OUT": target}.get(argument, argument) for argument in arguments))
    assert done.code == 2
    assert done.out == ""
    assert done.err.startswith("error: ")
    assert says in done.err
    assert "Traceback" not in done.err
    assert not target.exists()
    assert roll.read_bytes() == before


def test_every_option_is_shown_in_one_section() -> None:
    listed = [name for names in SECTIONS.values() for name in names]
    options = [
        HELP if HELP in p.opts else p.name
        for p in command.get_params(Context(command))
        if isinstance(p, Option)
    ]
    assert sorted(listed) == sorted(map(str, options))
    text = command.get_help(Context(command))
    assert all(f"{title}:" in text for title in SECTIONS)
    assert "Others" not in text


def test_help_tells_the_defaults_that_hold() -> None:
    from rewriter.simplify import DEFAULT_MEMORY, DEFAULT_TIMEOUT
    from rewriter.verify import VerifyOptions
    from rewriter.verify.sides import DEFAULT_TIMEOUT as VERIFY_TIMEOUT

    told = {}
    for option in command.params:
        if isinstance(option, Option) and "[default: " in (option.help or ""):
            told[option.name] = str(option.help).partition("[default: ")[2].rstrip("]")
    assert Bytes().convert(told.pop("simplify_memory"), None, None) == DEFAULT_MEMORY
    assert {name: float(value) for name, value in told.items()} == {
        "samples": VerifyOptions.samples,
        "seed": VerifyOptions.seed,
        "simplify_timeout": DEFAULT_TIMEOUT,
        "verify_timeout": VERIFY_TIMEOUT,
    }
