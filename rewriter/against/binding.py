"""Which of a graph's inputs goes to which parameter of a module's ``forward``."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import inspect
    from collections.abc import Iterator, Mapping, Sequence

#: An input of the graph by its name, or a tuple or dict of them.
Part = str | tuple[str, ...] | dict[str, str]


@dataclass(frozen=True)
class Binding:
    """Places for all inputs, by their names."""

    args: tuple[str, ...] = ()
    kwargs: Mapping[str, Part] = field(default_factory=dict)
    #: What is assumed, in a clause; "" where the names leave no doubt.
    assumed: str = ""

    def fill(self, values: Mapping[str, Any]) -> tuple[list[Any], dict[str, Any]]:
        """Positional and keyword arguments."""
        return [values[name] for name in self.args], {
            name: _filled(part, values) for name, part in self.kwargs.items()
        }


def _filled(part: Part, values: Mapping[str, Any]) -> Any:
    if isinstance(part, str):
        return values[part]
    if isinstance(part, dict):
        return {key: values[name] for key, name in part.items()}
    return tuple(values[name] for name in part)


def bindings(signature: inspect.Signature, inputs: Sequence[str]) -> list[Binding]:
    """All that ``signature`` takes, the likeliest first; TypeError where it takes none.

    By name where all are parameters.  Else an exporter may have called the parts of a tuple or dict ``pair_0``,
    ``pair_1``, ``options_key``; or the user gave names of their own (``x_in`` for ``x``), and order tells.  Where a
    name may be either, the call itself tells: a dict is no tensor.
    """
    found: list[Binding] = []
    refusal = TypeError("it takes no such inputs")
    for binding in _candidates(signature, inputs):
        try:
            args, kwargs = binding.fill(dict.fromkeys(inputs))
            signature.bind(*args, **kwargs)
        except TypeError as error:
            refusal = error
            continue
        if not any((known.args, known.kwargs) == (binding.args, binding.kwargs) for known in found):
            found.append(binding)
    if not found:
        raise refusal
    return found


def _candidates(signature: inspect.Signature, inputs: Sequence[str]) -> Iterator[Binding]:
    parameters = signature.parameters.values()
    named = [p.name for p in parameters if p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY)]
    open_ended = any(p.kind == p.VAR_KEYWORD for p in parameters)
    by_name = Binding(kwargs={name: name for name in inputs})
    if set(inputs) <= set(named):
        yield by_name
        return
    takes = f"forward({', '.join(signature.parameters)}) got {', '.join(inputs)} of the graph"
    parts = _parts(inputs, named, open_ended=open_ended)
    if parts is not None and _is_container(parts, fewer=len(named) < len(inputs)):
        yield Binding(kwargs=_packed(parts, alone=True))
    if open_ended:
        yield by_name
    if parts is not None and all(len(of) == 1 for of in parts.values()):
        plain = {owner: name for owner, of in parts.items() for name in of.values()}
        yield Binding(kwargs=plain, assumed=f"inputs were taken by the beginnings of their names: {takes}")
    yield Binding(tuple(inputs), assumed=f"inputs were taken in order: {takes}")
    if parts is not None:
        yield Binding(kwargs=_packed(parts, alone=True))
        yield Binding(kwargs=_packed(parts, alone=False))


def _parts(
    inputs: Sequence[str], parameters: Sequence[str], *, open_ended: bool
) -> dict[str, dict[str, str]] | None:
    """For each parameter the inputs whose names begin with its own, by what follows; None where a name fits none."""
    found: dict[str, dict[str, str]] = {}
    for name in inputs:
        if name in parameters:
            found.setdefault(name, {})[""] = name
            continue
        owners = [p for p in parameters if name.startswith(f"{p}_")]
        if owners:
            owner = max(owners, key=len)
            found.setdefault(owner, {})[name.removeprefix(f"{owner}_")] = name
        elif open_ended:
            found[name] = {"": name}
        else:
            return None
    # What is a tensor itself has no parts.
    return None if any("" in of and len(of) > 1 for of in found.values()) else found


def _is_container(parts: Mapping[str, Mapping[str, str]], *, fewer: bool) -> bool:
    """Whether the names are those of parts: several of one parameter, or the numbers of a tuple.

    ``fewer``: there are fewer parameters than inputs, so that some take several.
    """
    several = [of for of in parts.values() if len(of) > 1]
    return any(fewer or _is_tuple(of) for of in several) or any(map(_is_tuple, parts.values()))


def _is_tuple(of: Mapping[str, str]) -> bool:
    return list(of) == [str(number) for number in range(len(of))]


def _packed(parts: Mapping[str, Mapping[str, str]], *, alone: bool) -> dict[str, Part]:
    """The parts of each parameter put together; a single one too where it is ``alone``, else as it is."""
    made: dict[str, Part] = {}
    for owner, of in parts.items():
        if "" in of or (len(of) == 1 and not alone):
            made[owner] = next(iter(of.values()))
        else:
            made[owner] = tuple(of.values()) if _is_tuple(of) else dict(of)
    return made
