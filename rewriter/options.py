"""The forms in which values are given on the command line, read into what the library takes."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import click

if TYPE_CHECKING:
    from click import Context, Parameter

    _ParamType = click.ParamType[Any]
else:
    _ParamType = click.ParamType  # not a generic class in click before 8.5


class _Form(_ParamType):
    """A value with a grammar of its own; ``name`` shows it."""

    def refuse(self, value: Any, param: Parameter | None, ctx: Context | None) -> NoReturn:
        self.fail(f"'{value}' is not of the form {self.name}", param, ctx)


class Range(_Form):
    """``ids=0:30521``, both ends included."""

    name = "NAME=LOW:HIGH"

    def convert(
        self, value: Any, param: Parameter | None, ctx: Context | None
    ) -> tuple[str, tuple[float, float]]:
        name, _, text = str(value).rpartition("=")
        low, _, high = text.partition(":")
        try:
            bounds = _number(low), _number(high)
        except ValueError:
            self.refuse(value, param, ctx)
        if not name or not bounds[0] <= bounds[1]:
            self.refuse(value, param, ctx)
        return name, bounds


class Sizes(_Form):
    """``batch=1,3``."""

    name = "DIM=SIZE[,SIZE]"

    def convert(
        self, value: Any, param: Parameter | None, ctx: Context | None
    ) -> tuple[str, tuple[int, ...]]:
        name, _, text = str(value).rpartition("=")
        sizes = text.split(",")
        if not name or not all(size.strip().isdecimal() for size in sizes):
            self.refuse(value, param, ctx)
        return name, tuple(int(size) for size in sizes)


class Library(_Form):
    """``com.example=libmyop.so``."""

    name = "DOMAIN=FILE"

    def convert(self, value: Any, param: Parameter | None, ctx: Context | None) -> tuple[str, Path]:
        domain, _, file = str(value).partition("=")
        if not domain or not file:
            self.refuse(value, param, ctx)
        return domain, Path(file)


class Bytes(_Form):
    """``512M``, ``4G``, or plain bytes."""

    name = "SIZE, such as 512M or 4G"

    def convert(self, value: Any, param: Parameter | None, ctx: Context | None) -> int:
        text = str(value).strip().upper().removesuffix("B")
        factor = {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30}.get(text[-1:], 1)
        number = text if factor == 1 else text[:-1]
        if not number.isdecimal() or int(number) == 0:
            self.refuse(value, param, ctx)
        return int(number) * factor


def _number(text: str) -> float:
    """An int where it is written as one, so that a range of token ids stays exact."""
    try:
        return int(text)
    except ValueError:
        return float(text)


def merged(pairs: tuple[tuple[str, Any], ...], option: str) -> dict[str, Any]:
    """A repeated option as a mapping; the same name twice is an error, not the last one."""
    found: dict[str, Any] = {}
    for name, value in pairs:
        if name in found:
            raise click.BadParameter(f"'{name}' is given twice", param_hint=f"'{option}'")
        found[name] = value
    return found
