"""A `torch.onnx` symbolic, ``fn(g, x, …)``, as the body of a pass."""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Any, Literal, Unpack

from rewriter.errors import DecompositionError, DecompositionFault, PassDefinitionError, UnsupportedParameter
from rewriter.interop.declare import Cases, InteropPass, Options, declare
from rewriter.interop.parameters import DESCRIPTORS, hints_of, infer_signature, kinds_of_hint, parameters_of
from rewriter.interop.source import line_of, placed
from rewriter.interop.torch_graph import TorchGraph
from rewriter.interop.torch_values import PythonUse, TorchValue
from rewriter.placeholder.value import Value

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from rewriter.placeholder.builder import Builder
    from rewriter.placeholder.contract import Placeholder
    from rewriter.placeholder.signature import Parameter, Signature

Convention = Literal["auto", "value", "python"]


def from_symbolic(
    operator: str | Sequence[str],
    fn: Callable[..., Any],
    *,
    reference: Callable[..., Any] | None = None,
    cases: Cases | None = None,
    constants: Convention = "auto",
    **options: Unpack[Options],
) -> Placeholder:
    """A pass for ``operator`` whose body is the symbolic ``fn(g, x, …)`` as it stands.

    ``fn`` builds with ``g.op("Pow", x, g.op("Constant", value_t=torch.tensor(2.0)))`` and returns a value or a tuple.
    ``reference(x, …)`` is the operator in PyTorch, ``cases`` the inputs on which both must agree; without either the
    pass does not load.

    ``constants`` says how numbers, strings and lists among the arguments are handed to ``fn``: ``"value"`` as constant
    values (what ``register_custom_op_symbolic`` gives, to be unwrapped by ``symbolic_helper``), ``"python"`` as Python
    values (what ``autograd.Function.symbolic`` gets).  ``"auto"`` hands over values, and starts again with Python
    values where ``fn`` turns out to use one as a number or a list; a parameter annotated ``int``, ``float``, ``bool``,
    ``str`` or a list of them is a Python value from the start.
    """
    if constants not in ("auto", "value", "python"):
        raise PassDefinitionError(
            f"constants='{constants}' is none of 'auto', 'value', 'python'", where=str(operator)
        )
    if not callable(fn):
        raise PassDefinitionError(f"{fn!r} is no function", where=str(operator))
    summary = _first_line(fn) or "A torch.onnx symbolic."
    return declare(
        operator, _Symbolic(fn, constants), summary=summary, reference=reference, cases=cases, options=options
    )


class _Symbolic:
    def __init__(self, fn: Callable[..., Any], constants: Convention) -> None:
        self._fn = fn
        self._constants = constants

    def signature(self, owner: InteropPass) -> Signature:
        declared = parameters_of(self._fn, 1, owner.pass_name())
        return infer_signature(
            declared,
            owner=owner.pass_name(),
            cases=owner.case_list,
            explicit=owner.options.get("parameters", {}),
            hints=hints_of(self._fn),
            descriptors=self._descriptors(declared, owner),
        )

    def _descriptors(self, declared: Sequence[inspect.Parameter], owner: InteropPass) -> Mapping[str, str]:
        given = getattr(self._fn, "_arg_descriptors", ())
        unknown = [item for item in given if item not in DESCRIPTORS and item != "none"]
        if unknown or len(given) > len(declared):
            raise PassDefinitionError(
                f"parse_args{given!r} does not fit the function's parameters", where=owner.pass_name()
            )
        return {parameter.name: item for parameter, item in zip(declared, given, strict=False)}

    def build(self, owner: InteropPass, g: Builder, arguments: dict[str, Any]) -> Any:
        if self._constants != "auto":
            return self._attempt(owner, g, arguments, as_values=self._constants == "value", annotated=False)
        start = g.mark()
        try:
            return self._attempt(owner, g, arguments, as_values=True, annotated=True)
        except PythonUse:
            g.rewind(start)
            return self._attempt(owner, g, arguments, as_values=False, annotated=False)

    def _attempt(
        self, owner: InteropPass, g: Builder, arguments: dict[str, Any], *, as_values: bool, annotated: bool
    ) -> Any:
        graph = TorchGraph(g)
        hints = hints_of(self._fn) if annotated else {}

        def handed(parameter: Parameter, argument: Any) -> Any:
            if isinstance(argument, Value):
                return graph.argument(argument)
            if parameter.variadic:
                return tuple(graph.argument(item) if isinstance(item, Value) else item for item in argument)
            if argument is None:
                return None
            if as_values and not (annotated and kinds_of_hint(hints.get(parameter.name))[0]):
                return graph.literal(argument)
            return list(argument) if isinstance(argument, tuple) else argument

        positional: list[Any] = []
        named: dict[str, Any] = {}
        keyword_only = _keyword_only(self._fn)
        for parameter in owner.signature.parameters:
            value = handed(parameter, arguments[parameter.name])
            if parameter.variadic:
                positional += value
            elif parameter.name in keyword_only:
                named[parameter.name] = value
            else:
                positional.append(value)
        return self._results(graph, self._call(graph, positional, named))

    def _call(self, graph: TorchGraph, positional: Sequence[Any], named: Mapping[str, Any]) -> Any:
        try:
            return self._fn(graph, *positional, **named)
        except DecompositionError as error:
            raise placed(error, self._fn) from error.__cause__
        except Exception as error:
            line = line_of(error, self._fn)
            text = str(error).strip().split("\n")[0].split("  [Caused by")[0]
            if type(error).__module__.startswith("torch.onnx"):
                raise UnsupportedParameter(f"{line}: {text}", where=graph.where) from error
            raise DecompositionFault(
                f"{line}: {type(error).__name__}: {text}",
                where=graph.where,
                remedy="sizes() and dim() are None where a size or the rank is not known; --debug shows the traceback",
            ) from error

    def _results(self, graph: TorchGraph, made: Any) -> Any:
        several = isinstance(made, (tuple, list))
        results: list[Value | None] = []
        for item in made if several else (made,):
            if item is None or (type(item) is TorchValue and item.omitted):
                results.append(None)
            elif type(item) is TorchValue:
                results.append(graph.builder_value(item))
            else:
                where = line_of(Exception(), self._fn)
                raise graph.fault(
                    f"{where}: the symbolic returned a {type(item).__name__}, not a value of g.op"
                )
        return tuple(results) if several else results[0]


def _keyword_only(fn: Callable[..., Any]) -> set[str]:
    parameters = inspect.signature(fn).parameters.values()
    return {parameter.name for parameter in parameters if parameter.kind is inspect.Parameter.KEYWORD_ONLY}


def _first_line(fn: Callable[..., Any]) -> str:
    return (inspect.getdoc(fn) or "").strip().split("\n")[0]
