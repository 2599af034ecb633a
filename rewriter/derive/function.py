"""A function in PyTorch as a pass: its decomposition is derived from it."""

from __future__ import annotations

import functools
import inspect
from typing import TYPE_CHECKING, Any

from rewriter.errors import UsageError
from rewriter.placeholder.contract import Placeholder
from rewriter.placeholder.discovery import load_module
from rewriter.placeholder.signature import read_reference

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from types import ModuleType

    from rewriter.placeholder.contract import Decomposition
    from rewriter.placeholder.signature import Signature


class FunctionPass(Placeholder):
    """A pass whose reference is a function that somebody else wrote; made by :func:`from_torch`."""

    function: Callable[..., Any]

    @property
    def decompositions(self) -> Sequence[Decomposition]:
        return ()

    @functools.cached_property
    def signature(self) -> Signature:
        return read_reference(type(self).function, self.pass_name())


def from_torch(
    function: Callable[..., Any], matches: str | Sequence[str], *, outputs: Sequence[str] = ("output",)
) -> Placeholder:
    """A pass for the operators ``matches`` (``"mylib::swish"``), which mean what ``function`` computes.

    ``function`` takes the operator's tensors and parameters, in the operator's order.  It returns a tensor, or a tuple
    of tensors that ``outputs`` names.  Python numbers and lists among its defaults are parameters, everything else is a
    tensor.  Its decomposition is derived at each node's types, and proved like any other::

        swish = rewriter.from_torch(lambda x, beta=1.0: x * torch.sigmoid(beta * x), matches="mylib::swish")
        rewriter.rewrite("in.onnx", "out.onnx", passes=[swish, "auto"])

    Raises PassDefinitionError where a parameter of ``function`` hides what the operator takes (``**options``).
    """
    names = (matches,) if isinstance(matches, str) else tuple(matches)
    last = names[0].rpartition("::")[2]
    body = {
        "name": last,
        "__doc__": (inspect.getdoc(function) or f"`{last}`, a function in PyTorch.").partition("\n")[0],
        "matches": names,
        "domains": (),
        "outputs": tuple(outputs),
        "function": staticmethod(function),
        "reference": staticmethod(function),
    }
    made: Placeholder = type("FunctionPass", (FunctionPass,), body)()
    made.validate()
    return made


def operators_of(items: Iterable[Any]) -> list[Placeholder]:
    """Passes for the operators that ``items`` define: Python files, import paths, or operators themselves.

    An operator is made by :func:`rewriter.torch.placeholder` or ``torch.library.custom_op``, or is a subclass of
    ``torch.autograd.Function``, which stands for the operator of its name that its ``symbolic`` writes.  UsageError
    where a module defines none, or two have one name.
    """
    found: dict[str, Placeholder] = {}
    for item in items:
        members = _in_module(load_module(item), item) if isinstance(item, str) else [item]
        for member in members:
            made = _as_pass(member)
            if made is None:
                raise UsageError(
                    f"{member!r} is not an operator",
                    where="operators",
                    remedy="give what @rewriter.torch.placeholder or torch.library.custom_op makes, an "
                    "autograd.Function, or rewriter.from_torch(function, matches=…) among the passes",
                )
            name = made.matches[0]
            if name in found:
                raise UsageError(f"two operators are called '{name}'", remedy="give one of them another name")
            found[name] = made
    return list(found.values())


def _in_module(module: ModuleType, item: str) -> list[Any]:
    own = [
        member
        for member in dict.fromkeys(value for value in vars(module).values() if _is_hashable(value))
        if not isinstance(member, type) or member.__module__ == module.__name__
    ]
    found = [member for member in own if _as_pass(member) is not None]
    if not found:
        raise UsageError(
            "no operator is defined in it",
            where=item,
            remedy="name the file that has functions made with @rewriter.torch.placeholder or "
            "torch.library.custom_op, or subclasses of torch.autograd.Function",
        )
    return found


def _is_hashable(value: Any) -> bool:
    return getattr(type(value), "__hash__", None) is not None


def _as_pass(member: Any) -> Placeholder | None:
    """The pass of an operator; None for anything else."""
    import torch
    from torch._library.custom_ops import CustomOpDef

    if isinstance(member, CustomOpDef):
        return from_torch(member._init_fn, member._qualname)
    if (
        isinstance(member, type)
        and issubclass(member, torch.autograd.Function)
        and member.__name__ != "Function"
    ):
        return _of_autograd(member)
    if isinstance(getattr(member, "qualified_name", None), str) and callable(
        getattr(member, "function", None)
    ):
        return from_torch(member.function, member.qualified_name)
    return None


def _of_autograd(function: Any) -> Placeholder:
    parameters = list(inspect.signature(function.forward).parameters.values())
    # With a setup_context of its own, forward takes no context.
    takes_context = "setup_context" not in vars(function)
    signature = inspect.Signature(parameters[1:] if takes_context else parameters)

    def reference(*args: Any, **kwargs: Any) -> Any:
        bound = signature.bind(*args, **kwargs)
        bound.apply_defaults()
        return function.apply(*bound.args)

    reference.__signature__ = signature  # type: ignore[attr-defined]
    reference.__doc__ = function.__doc__
    return from_torch(reference, function.__name__)
