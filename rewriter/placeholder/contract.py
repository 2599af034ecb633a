"""What the author of a pass writes: a subclass of :class:`Placeholder`."""

from __future__ import annotations

import functools
import inspect
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

from rewriter.errors import PassDefinitionError
from rewriter.placeholder.shapes import parse as parse_shapes
from rewriter.placeholder.signature import Signature, is_partial, read_reference, read_signature

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from onnx import NodeProto

    from rewriter.placeholder.binding import Bound, Site
    from rewriter.placeholder.case import Case
    from rewriter.placeholder.expand import Expansion
    from rewriter.placeholder.standard import Call
    from rewriter.types import TensorType

_F = TypeVar("_F", bound="Callable[..., Any]")

#: Where ``auto`` looks for a bare name: the domains that exporters and their users write to.
COMMON_DOMAINS = (
    "com.example",
    "aten",
    "org.pytorch.aten",
    "mylib",
    "custom",
    "custom_domain",
    "torchvision",
    "mmcv",
    "mmdeploy",
)

FLOATS = ("float16", "float32", "float64")

#: Tolerances of a pass that computes each element by itself from a few operators: a few units in the last place of the
#: result, nothing for the size of other elements.  What kernels add is in :meth:`Placeholder.terms`.
ELEMENTWISE: Mapping[str, tuple[float, float]] = {"float32": (2e-6, 1e-37)}


@dataclass(frozen=True)
class Decomposition:
    """One way to write an operator in standard ONNX, and when it may be chosen."""

    name: str
    build: Callable[..., Any]
    #: Lowest and highest version of the default domain that it can be written in.
    opset: int = 11
    until: int | None = None
    #: Whether it is right on every runtime that the project tests, not only on onnxruntime.
    portable: bool = True
    #: Where it is preferred; called with the operator's arguments by name.
    when: Callable[..., bool] | None = None
    #: Where it is correct at all; called likewise.
    requires: Callable[..., bool] | None = None
    #: Why it is preferred there, for the report.
    reason: str = ""

    def serves(self, opset: int) -> bool:
        return self.opset <= opset and (self.until is None or opset <= self.until)


def decomposition(
    *,
    opset: int = 11,
    until: int | None = None,
    portable: bool = True,
    when: Callable[..., bool] | None = None,
    requires: Callable[..., bool] | None = None,
    reason: str = "",
) -> Callable[[_F], _F]:
    """Mark a method as a decomposition for opsets ``opset`` to ``until``.

    ``when`` is a preference and ``requires`` a precondition, both called with the operator's arguments by name; a
    preference that holds comes before a decomposition without one, then the higher ``opset`` wins, then the order
    of definition.
    """

    def mark(function: _F) -> _F:
        function.__decomposition__ = Decomposition(  # type: ignore[attr-defined]
            function.__name__, function, opset, until, portable, when, requires, reason
        )
        return function

    return mark


@dataclass(frozen=True)
class Known:
    """What is known of values by name."""

    type_of: Callable[[str], TensorType | None]
    is_constant: Callable[[str], bool]


class Placeholder:
    """What an operator means, how it decomposes into standard ONNX, and on which cases that is tested.

    A pass defines ``matches`` and :meth:`reference` (plain torch, imported inside the method).  That is enough: a
    decomposition is derived from the reference.  One that is written is either one method ``decompose(self, g, …)`` or
    several marked with :func:`decomposition`.  Their parameters are those of the operator, in its own order (see
    :mod:`rewriter.placeholder.signature`); all but one may leave out what they do not use.  :meth:`cases` says on what
    it is tested.

    What is built may depend on the types, the known values and the parameters.  It must not depend on ``Value.name`` or
    ``g.where``: placeholders that differ in these alone share one expansion (:mod:`rewriter.graph.templates`).
    """

    #: What the pass is called on the command line; by default the class name in snake_case.
    name: ClassVar[str] = ""
    #: Operator names that it takes: bare (``"Roll"``) or qualified (``"aten::roll"``), whatever their case
    #: and underscores.
    matches: ClassVar[tuple[str, ...]] = ()
    #: Domains in which a bare name is taken without being asked for by name.
    domains: ClassVar[tuple[str, ...]] = COMMON_DOMAINS
    #: Other spellings of attributes: ``{"shift": "shifts"}``.
    aliases: ClassVar[Mapping[str, str]] = {}
    #: Where a library's own argument order differs: ``{"torchvision::deform_conv2d": ("x", "weight", …)}``.
    #: ``"-"`` is an input to be ignored, ``"stride.0"`` one element of a list parameter, ``"beta=1.0"`` a fixed
    #: value without input.
    schemas: ClassVar[Mapping[str, tuple[str, ...]]] = {}
    #: Operators of ONNX itself that it decomposes for targets that lack them.  Each function is given the operator
    #: and returns arguments of the pass by name, or None where the pass does not serve.
    standard: ClassVar[Mapping[str, Callable[[Call], Mapping[str, Any] | None]]] = {}
    #: Public functions of that name whose arguments come in another order, with that order.  Where a node's domain does
    #: not say which of them it means, shapes must tell, or ``--bind``.
    spellings: ClassVar[Mapping[str, tuple[str, ...]]] = {}
    #: What the operator requires of its tensors' shapes: ``"x: N C H W; rois: K 5"``
    #: (see :mod:`rewriter.placeholder.shapes`).
    shapes: ClassVar[str] = ""
    #: Names of the results, in order.
    outputs: ClassVar[tuple[str, ...]] = ("output",)
    #: Those of ``outputs`` that few ask for: a node without them is complete.
    auxiliary: ClassVar[tuple[str, ...]] = ()
    #: Element types of the main input that the cases are also run in.
    dtypes: ClassVar[tuple[str, ...]] = FLOATS
    #: (rtol, atol) per dtype name where the defaults do not fit, with the reason as a comment in the pass.
    tolerances: ClassVar[Mapping[str, tuple[float, float]]] = {}

    #: Whether the operator is meant for finite numbers only: what it makes of NaN and infinities is then not compared,
    #: but for those that its cases hold.  Weighted sums differ there by how they are written (0 times infinity).
    finite: ClassVar[bool] = False

    #: Why training uses another gradient than the derivative, where it does so on purpose (``"straight-through"``);
    #: checks of gradients then leave its values alone.
    surrogate_gradient: ClassVar[str] = ""

    def reference(self, *args: Any, **kwargs: Any) -> Any:
        """The operator in PyTorch: tensors as ``torch.Tensor``, parameters as Python values; a tensor or a tuple."""
        raise NotImplementedError

    def cases(self) -> Iterator[Case]:
        """Inputs and parameters on which every decomposition must agree with :meth:`reference`.

        None by default: the types and values of a model's own nodes are the cases then.
        """
        return iter(())

    def infer(self, *args: Any, **kwargs: Any) -> Any:  # noqa: ARG002  (subclasses name them)
        """Types of the results, called like a decomposition without the builder; None: infer from a decomposition.

        Needed where operator-by-operator inference would lose a symbolic size that is known to stay.
        """
        return None

    def compare(self, actual: tuple[Any, ...], expected: tuple[Any, ...]) -> str | None:
        """What is wrong with the results, in a clause; None where they agree.

        For passes where comparing element by element means nothing (equal scores in any order).  Both are numpy
        arrays in the order of ``outputs``, and of equal dtypes and shapes.  One that has a third parameter gets there
        the arguments of :meth:`reference` by name, tensors as numpy arrays.
        """
        raise NotImplementedError

    def terms(self, *args: Any, **kwargs: Any) -> Mapping[str, Any]:  # noqa: ARG002  (subclasses name them)
        """By ONNX operator, what the absolute error of its kernel is multiplied by in the result.

        ``{"Sigmoid": x}`` for x · sigmoid(x): a number, or an array that broadcasts to the result.  Signs do not count.
        It is called with the arguments of :meth:`reference` by name, floating-point tensors as float64 numpy arrays.
        Operators and errors are in :mod:`rewriter.verify.kernels`; what follows is allowed besides the tolerance.
        """
        return {}

    @property
    def has_terms(self) -> bool:
        """Whether the pass says what kernels' errors are multiplied by."""
        return type(self).terms is not Placeholder.terms

    def says_little(self, arguments: Mapping[str, Any], results: tuple[Any, ...]) -> str | None:  # noqa: ARG002
        """Why agreement on these arguments would say little, in a clause ("no box has an area"); None: it says enough.

        ``arguments`` are those of :meth:`reference` by name, tensors as numpy arrays; ``results`` what it gave.  Where
        it is so in every sample that a model is verified with, there is a warning.
        """
        return None

    @property
    def remarks(self) -> bool:
        """Whether the pass knows when agreement says little."""
        return type(self).says_little is not Placeholder.says_little

    @property
    def compares(self) -> bool:
        """Whether the pass judges its results itself."""
        return type(self).compare is not Placeholder.compare

    @functools.cached_property
    def compares_arguments(self) -> bool:
        """Whether :meth:`compare` wants to see the arguments as well."""
        return self.compares and len(inspect.signature(self.compare).parameters) > 2

    @classmethod
    def pass_name(cls) -> str:
        return cls.name or re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", cls.__name__).lower()

    @functools.cached_property
    def decompositions(self) -> Sequence[Decomposition]:
        found: dict[str, Decomposition] = {}
        for owner in reversed(type(self).__mro__):
            for key, member in vars(owner).items():
                marked = getattr(member, "__decomposition__", None)
                if isinstance(marked, Decomposition):
                    found[key] = marked
                elif key == "decompose" and callable(member):
                    found[key] = Decomposition("decompose", member)
                elif key in found:
                    del found[key]
        return tuple(found.values())

    def at(self, site: Site, ignored: Sequence[str] = ()) -> Placeholder:  # noqa: ARG002
        """The pass that takes ``site``: another one where the operator has overloads, which only inputs tell apart.

        ``ignored`` are attributes of the node that are no arguments.
        """
        return self

    def stays(
        self,
        node: NodeProto,  # noqa: ARG002
        dtype_of: Callable[[str], int | None],  # noqa: ARG002
        known: Known | None = None,  # noqa: ARG002
    ) -> bool:
        """Whether ``node`` need not be replaced after all, now that element types of its values are known.

        ``known`` tells their whole types, and which are constants.
        """
        return False

    #: Whether it stands for an operator of ONNX itself, whose meaning is the node as the model came.
    is_standard: ClassVar[bool] = False

    #: The opset in which it is meant, where it stands for an operator of ONNX itself.
    meant_at: int | None = None

    def evaluated(self, arguments: Mapping[str, Any]) -> list[Any] | None:  # noqa: ARG002
        """The results for arguments by name, tensors as numpy arrays, where PyTorch is not asked; else None."""
        return None

    def bound_at(self, site: Site) -> Bound | None:  # noqa: ARG002
        """The arguments of ``site``, where they are not bound by the signature."""
        return None

    def expanded_at(self, site: Site) -> Expansion | None:  # noqa: ARG002
        """What stands for ``site``, where that is not built by a decomposition."""
        return None

    @functools.cached_property
    def signature(self) -> Signature:
        owner = type(self).__name__
        if not self.decompositions:
            return read_reference(self.reference, owner)
        whole = next((item for item in self.decompositions if not is_partial(item.build)), None)
        if whole is None:
            raise PassDefinitionError(
                "no decomposition declares all parameters of the operator",
                where=owner,
                remedy="leave out '**' in one of them, and name every parameter there",
            )
        return read_signature(whole.build, owner)

    @property
    def summary(self) -> str:
        """First line of the class's docstring."""
        return (type(self).__doc__ or "").strip().split("\n")[0]

    def validate(self) -> None:
        """PassDefinitionError unless the pass is complete: it could otherwise not be proved."""
        owner = type(self).__name__
        if not self.matches:
            raise PassDefinitionError("no operator names to match", where=owner, remedy="set `matches`")
        if type(self).reference is Placeholder.reference:
            raise PassDefinitionError(
                "no reference(): its PyTorch meaning is missing, so it could not be proved",
                where=owner,
                remedy="define reference()",
            )
        for item in self.decompositions:
            self._check_parameters(item, owner)
        self._check_shapes(owner)
        for alias, target in self.aliases.items():
            if target not in self.signature:
                raise PassDefinitionError(f"alias '{alias}' names no parameter: '{target}'", where=owner)

    def _check_shapes(self, owner: str) -> None:
        try:
            declared = parse_shapes(self.shapes)
        except ValueError as error:
            raise PassDefinitionError(
                f"`shapes` cannot be read: {error}",
                where=owner,
                remedy='write shapes = "x: N C H W; rois: K 5"',
            ) from error
        for name in declared:
            if name not in self.signature or not self.signature[name].is_tensor:
                raise PassDefinitionError(
                    f"`shapes` names '{name}', which is not a tensor parameter",
                    where=owner,
                    remedy=f"the operator's parameters are: {self.signature}",
                )

    def _check_parameters(self, item: Decomposition, owner: str) -> None:
        """PassDefinitionError where a decomposition reads the operator's schema otherwise than the others do."""
        found, expected = read_signature(item.build, owner), self.signature
        if not is_partial(item.build) and found != expected:
            raise PassDefinitionError(
                f"'{item.name}' declares other parameters than the decompositions before it",
                where=owner,
                remedy="declare the operator's own signature; one that needs a part of it ends in '**_: Any'",
            )
        for parameter in found.parameters:
            if parameter.name not in expected or not parameter.agrees(expected[parameter.name]):
                raise PassDefinitionError(
                    f"'{item.name}' declares '{parameter.name}', which is no parameter of the operator as the others "
                    "declare it",
                    where=owner,
                    remedy=f"the operator's parameters are: {expected}",
                )
