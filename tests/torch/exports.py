"""Models with placeholders, made by PyTorch's exporters: every form in which placeholders reach a file.

Each function exports one small net anew and returns an :class:`Exported`: the model as written, the torch module that
it was made from, and inputs of several sizes on which both must agree.
"""

from __future__ import annotations

import contextlib
import io
import logging
import warnings
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import onnx
import torch
from onnx import ModelProto
from torch import Tensor, nn
from torch.onnx import OperatorExportTypes

from rewriter.torch import export_placeholders, placeholder

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence


@dataclass(frozen=True)
class Exported:
    model: ModelProto
    #: Gives the expected outputs for ``inputs``.
    module: nn.Module
    #: Inputs for the net, by batch size.
    inputs: Callable[[int], tuple[Tensor, ...]]
    #: Qualified names of the placeholders in the file, once each.
    operators: tuple[str, ...]
    passes: tuple[str, ...] = ("roll",)


@contextlib.contextmanager
def quiet(*, keep_output: bool = False) -> Iterator[None]:
    """The exporters report progress and their own deprecations; neither is what a test is about."""
    disabled = logging.root.manager.disable
    logging.disable(logging.WARNING)
    output = contextlib.nullcontext() if keep_output else contextlib.redirect_stdout(io.StringIO())
    try:
        with warnings.catch_warnings(), output:
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(disabled)


def legacy(
    module: nn.Module, args: tuple[Any, ...], *, opset: int = 13, dynamic: bool = True, **options: Any
) -> ModelProto:
    """``torch.onnx.export(dynamo=False)``, with a dynamic first axis named ``batch`` on every input."""
    options.setdefault("input_names", [f"x{i}" if i else "x" for i in range(len(args))])
    if dynamic:
        options.setdefault("dynamic_axes", {name: {0: "batch"} for name in options["input_names"]})
    file = io.BytesIO()
    with quiet(), torch.no_grad():
        torch.onnx.export(module.eval(), args, file, dynamo=False, opset_version=opset, **options)
    return onnx.load_from_string(file.getvalue())


def dynamo(
    module: nn.Module, args: tuple[Any, ...], *, opset: int = 18, dynamic: bool = True, **options: Any
) -> ModelProto:
    """``torch.onnx.export(dynamo=True)``, with a dynamic first axis named ``batch`` on every input."""
    if dynamic:
        options.setdefault("dynamic_shapes", tuple({0: "batch"} for _ in args))
    with quiet(), torch.no_grad():
        program = torch.onnx.export(
            module.eval(), args, dynamo=True, opset_version=opset, verbose=False, **options
        )
    assert program is not None
    return program.model_proto


# --- nets -------------------------------------------------------------------------------------------------------


class Between(nn.Module):
    """An operator between two linear layers, on (batch, 6, 8)."""

    def __init__(self, operator: Callable[[Tensor], Any], seed: int = 0) -> None:
        super().__init__()
        torch.manual_seed(seed)
        self.before = nn.Linear(8, 8)
        self.after = nn.Linear(8, 4)
        self.operator = operator

    def forward(self, x: Tensor) -> Tensor:
        return self.after(self.operator(self.before(x)))


def batches(size: int) -> tuple[Tensor, ...]:
    return (torch.randn(size, 6, 8, generator=torch.Generator().manual_seed(size)),)


def by_two(x: Tensor) -> Tensor:
    return torch.roll(x, 2, 1)


def square_plus_one(x: Tensor) -> Tensor:
    return x * x + 1


def _exported(
    model: ModelProto, reference: Callable[[Tensor], Any], operator: str, passes: tuple[str, ...] = ("roll",)
) -> Exported:
    return Exported(model, Between(reference).eval(), batches, (operator,), passes)


# --- operators of one's own, registered with the dispatcher ----------------------------------------------------


@torch.library.custom_op(
    "onnx_rewrite_tests::roll", mutates_args=(), schema="(Tensor x, int[] shifts, int[] dims) -> Tensor"
)
def library_roll(x: Tensor, shifts: Sequence[int], dims: Sequence[int]) -> Tensor:
    return torch.roll(x, tuple(shifts), tuple(dims))


@library_roll.register_fake
def _(x: Tensor, shifts: Sequence[int], dims: Sequence[int]) -> Tensor:
    return torch.empty_like(x)


@torch.library.custom_op("mylib::square_plus_one", mutates_args=())
def library_square_plus_one(x: Tensor) -> Tensor:
    return x * x + 1


@library_square_plus_one.register_fake
def _(x: Tensor) -> Tensor:
    return torch.empty_like(x)


def _square_backward(ctx: Any, grad: Tensor) -> Tensor:
    (x,) = ctx.saved_tensors
    return grad * 2 * x


library_square_plus_one.register_autograd(
    _square_backward, setup_context=lambda ctx, inputs, output: ctx.save_for_backward(*inputs)
)


@contextlib.contextmanager
def symbolic_registered(name: str, function: Callable[..., Any], opset: int) -> Iterator[None]:
    """``register_custom_op_symbolic`` for one export: registrations are global."""
    torch.onnx.register_custom_op_symbolic(name, function, opset)
    try:
        yield
    finally:
        torch.onnx.unregister_custom_op_symbolic(name, opset)


# --- dynamo=False -----------------------------------------------------------------------------------------------


class RollFunction(torch.autograd.Function):
    """How the tutorials write it: the shape of the node is the author's own."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, shift: int, dim: int) -> Tensor:
        return torch.roll(x, shift, dim)

    @staticmethod
    def symbolic(g: Any, x: Any, shift: int, dim: int) -> Any:
        return g.op("com.example::RollFunction", x, shift_i=shift, dim_i=dim)


def function_with_symbolic(opset: int = 13) -> Exported:
    model = legacy(Between(lambda x: RollFunction.apply(x, 2, 1)), batches(3), opset=opset)
    return _exported(model, by_two, "com.example::RollFunction")


class DefaultDomainRoll(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        return torch.roll(x, (2,), (1,))

    @staticmethod
    def symbolic(g: Any, x: Any) -> Any:
        return g.op("Roll", x, shifts_i=[2], dims_i=[1])


def default_domain_by_mistake(opset: int = 13) -> Exported:
    model = legacy(Between(DefaultDomainRoll.apply), batches(3), opset=opset)
    return _exported(model, by_two, "Roll")


def registered_symbolic(opset: int = 11) -> Exported:
    """``register_custom_op_symbolic("mylib::square_plus_one", …)``, under another name: the exporter refuses a node
    that is named like the operator that the symbolic is registered for."""
    with symbolic_registered("mylib::square_plus_one", lambda g, x: g.op("mylib::SquarePlusOne", x), opset):
        model = legacy(Between(library_square_plus_one), batches(3), opset=opset)
    return _exported(model, square_plus_one, "mylib::SquarePlusOne", ("square_plus_one",))


def registered_over_aten(opset: int = 13) -> Exported:
    """A symbolic for ``aten::roll`` that passes its arguments on: constants become inputs."""
    with symbolic_registered(
        "aten::roll", lambda g, x, shifts, dims: g.op("mylib::roll", x, shifts, dims), opset
    ):
        model = legacy(Between(by_two), batches(3), opset=opset)
    return _exported(model, by_two, "mylib::roll")


def _unsupported(g: Any, *args: Any) -> Any:
    raise torch.onnx.errors.UnsupportedOperatorError("aten::roll", 13, None)


def fallthrough_aten(opset: int = 13) -> Exported:
    """FALLTHROUGH of an operator that this exporter does not translate; it does know roll, unless told otherwise."""
    with symbolic_registered("aten::roll", _unsupported, opset):
        model = legacy(
            Between(by_two),
            batches(3),
            opset=opset,
            operator_export_type=OperatorExportTypes.ONNX_FALLTHROUGH,
        )
    return _exported(model, by_two, "org.pytorch.aten::roll")


def fallthrough_library(opset: int = 13) -> Exported:
    """FALLTHROUGH of an operator of one's own."""
    model = legacy(
        Between(lambda x: torch.ops.onnx_rewrite_tests.roll(x, [2], [1])),
        batches(3),
        opset=opset,
        operator_export_type=OperatorExportTypes.ONNX_FALLTHROUGH,
    )
    return _exported(model, by_two, "onnx_rewrite_tests::roll")


def aten_fallback(opset: int = 13) -> Exported:
    """ATEN_FALLBACK: one operator ``ATen``, its ``operator`` attribute saying which."""
    with symbolic_registered("aten::roll", _unsupported, opset):
        model = legacy(
            Between(by_two),
            batches(3),
            opset=opset,
            operator_export_type=OperatorExportTypes.ONNX_ATEN_FALLBACK,
        )
    return _exported(model, by_two, "org.pytorch.aten::ATen")


class OpaqueRoll(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        return torch.roll(x, 2, 1)


def python_op(opset: int = 13) -> Exported:
    """A Function without symbolic: ``prim::PythonOp``, which does not say what it is."""
    model = legacy(
        Between(OpaqueRoll.apply),
        batches(3),
        opset=opset,
        operator_export_type=OperatorExportTypes.ONNX_FALLTHROUGH,
        autograd_inlining=False,
    )
    return _exported(model, by_two, "prim::PythonOp", ())


def module_as_function(opset: int = 15) -> Exported:
    """``export_modules_as_functions``: a call of a model-local function whose body holds the placeholder."""
    model = legacy(Between(RollModule()), batches(3), opset=opset, export_modules_as_functions={RollModule})
    return _exported(model, by_two, "com.example::RollFunction")


class RollModule(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return RollFunction.apply(x, 2, 1)


# --- dynamo=True ------------------------------------------------------------------------------------------------


def ops_symbolic(opset: int = 18) -> Exported:
    def operator(x: Tensor) -> Tensor:
        if not torch.onnx.is_in_onnx_export():
            return by_two(x)
        attributes = {"shifts": [2], "dims": [1]}
        return torch.onnx.ops.symbolic(
            "com.example::Roll", (x,), attributes, dtype=x.dtype, shape=x.shape, version=1
        )

    return _exported(dynamo(Between(operator), batches(3), opset=opset), by_two, "com.example::Roll")


def ops_symbolic_multi_out(opset: int = 18) -> Exported:
    def operator(x: Tensor) -> Tensor:
        if not torch.onnx.is_in_onnx_export():
            return by_two(x)
        attributes = {"shifts": [2], "dims": [1]}
        return torch.onnx.ops.symbolic_multi_out(
            "com.example::Roll", (x,), attributes, dtypes=(x.dtype,), shapes=(x.shape,), version=1
        )[0]

    return _exported(dynamo(Between(operator), batches(3), opset=opset), by_two, "com.example::Roll")


def translation_table(opset: int = 18) -> Exported:
    """``custom_translation_table`` with a schema that is registered nowhere, by onnxscript's evaluator."""
    from onnxscript import evaluator

    schema = onnx.defs.OpSchema(
        "Roll",
        "com.example",
        1,
        inputs=[onnx.defs.OpSchema.FormalParameter("x", "T")],
        outputs=[onnx.defs.OpSchema.FormalParameter("y", "T")],
        type_constraints=[("T", ["tensor(float)"], "")],
        attributes=[
            onnx.defs.OpSchema.Attribute("shifts", onnx.defs.OpSchema.AttrType.INTS, required=False),
            onnx.defs.OpSchema.Attribute("dims", onnx.defs.OpSchema.AttrType.INTS, required=False),
        ],
    )

    def translate(self: Any, shifts: Sequence[int], dims: Sequence[int] = ()) -> Any:
        return evaluator.default().eval(schema, [self], {"shifts": list(shifts), "dims": list(dims)})

    table = {torch.ops.aten.roll.default: translate}
    model = dynamo(Between(by_two), batches(3), opset=opset, custom_translation_table=table)
    return _exported(model, by_two, "com.example::Roll")


# --- both -------------------------------------------------------------------------------------------------------


@placeholder("com.example::Roll")
def own_roll(x: Tensor, shifts: int | list[int], dims: int | list[int] | None = None) -> Tensor:
    return torch.roll(x, shifts, () if dims is None else dims)


def placeholder_function(use_dynamo: bool, opset: int) -> Exported:
    """``rewriter.torch.placeholder``."""
    export = dynamo if use_dynamo else legacy
    return _exported(
        export(Between(lambda x: own_roll(x, 2, 1)), batches(3), opset=opset), by_two, "com.example::Roll"
    )


def redirected(use_dynamo: bool, opset: int) -> Exported:
    """``rewriter.torch.export_placeholders`` around a model that knows nothing of it."""
    export = dynamo if use_dynamo else legacy
    with export_placeholders("roll"):
        model = export(Between(by_two), batches(3), opset=opset)
    return _exported(model, by_two, "com.example::Roll")


#: Every form that can be rewritten; ``python_op`` is the one that cannot.
FORMS: dict[str, Callable[[], Exported]] = {
    "function_with_symbolic-11": lambda: function_with_symbolic(11),
    "function_with_symbolic-13": lambda: function_with_symbolic(13),
    "default_domain_by_mistake": default_domain_by_mistake,
    "registered_symbolic-11": lambda: registered_symbolic(11),
    "registered_symbolic-13": lambda: registered_symbolic(13),
    "registered_over_aten": registered_over_aten,
    "fallthrough_aten": fallthrough_aten,
    "fallthrough_library": fallthrough_library,
    "aten_fallback": aten_fallback,
    "module_as_function": module_as_function,
    "ops_symbolic": ops_symbolic,
    "ops_symbolic_multi_out": ops_symbolic_multi_out,
    "translation_table": translation_table,
    "placeholder-legacy-11": lambda: placeholder_function(False, 11),
    "placeholder-legacy-17": lambda: placeholder_function(False, 17),
    "placeholder-dynamo-18": lambda: placeholder_function(True, 18),
    "placeholder-dynamo-21": lambda: placeholder_function(True, 21),
    "redirected-legacy-13": lambda: redirected(False, 13),
    "redirected-dynamo-20": lambda: redirected(True, 20),
}
