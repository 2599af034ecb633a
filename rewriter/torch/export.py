"""One call from a module to a file that runs: export, rewrite, and proof against the module."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import torch

from rewriter.derive.let_through import as_placeholders, library_and_stops
from rewriter.derive.translate import (
    LOCK,
    first_sentence,
    quiet,
    refuse_faults,
    symbolic_sizes,
    to_onnx,
    untranslated,
)
from rewriter.errors import ExportError, RewriteError, UsageError
from rewriter.storage.scratch import scratch_folder
from rewriter.torch.fallthrough import safe_fallthrough

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

    from rewriter.pipeline import PathLike
    from rewriter.report import Report

#: The opset of the legacy exporter: that in which derived decompositions are written.
_LEGACY_OPSET = 18


def export(
    model: torch.nn.Module,
    args: Sequence[Any],
    target: PathLike | None = None,
    *,
    kwargs: Mapping[str, Any] | None = None,
    dynamic_shapes: Any = None,
    input_names: Sequence[str] | None = None,
    output_names: Sequence[str] | None = None,
    passes: Any = "auto",
    against: Any = None,
    **options: Any,
) -> Report:
    """Export ``model`` to ONNX, rewrite what the exporter does not know, prove the file, and write it to ``target``.

    ``args`` and ``kwargs`` are one example of what ``model`` takes; ``dynamic_shapes`` is that of ``torch.export``.
    The model is traced by ``torch.export`` and translated by ``torch.onnx``.  An operator that a pass takes leaves as a
    placeholder.  A model that cannot be exported so, or whose file does not compute what the module does, is given to
    the legacy exporter, whose fall-through lets every operator out that it does not know.  Then
    :func:`rewriter.rewrite` does the rest: ``options`` are its arguments, and ``passes`` as there.  Every output is
    compared with ``model`` itself unless ``against`` names something else, or ``verify=False``.

    Without ``target`` the model is ``report.model``.  Raises ExportError where neither exporter takes the model, and
    whatever :func:`rewriter.rewrite` raises::

        report = rewriter.torch.export(net, (torch.randn(2, 3, 224, 224),), "net.onnx", dynamic_shapes=({0: "batch"},))
    """
    from rewriter.pipeline import rewrite

    if options.get("verify", True):
        options["against"] = model if against is None else against
    names = {"input_names": input_names, "output_names": output_names}
    given = dict(kwargs or {})
    refusals: list[tuple[str, Exception]] = []
    with _evaluating(model), scratch_folder() as folder:
        path = folder / "exported.onnx"
        for dynamo in (True, False):
            exporter = f"torch.onnx.export(dynamo={dynamo})"
            try:
                if dynamo:
                    _by_dynamo(model, tuple(args), given, path, dynamic_shapes, names, passes)
                else:
                    _by_legacy(model, tuple(args), given, path, dynamic_shapes, names)
                ranges = {} if "inputs" in options else _ranges(path, args, given)
                ranges |= dict(options.get("input_ranges") or {})
                report = rewrite(path, target, passes=passes, **{**options, "input_ranges": ranges})
            except UsageError:
                raise
            except Exception as error:  # noqa: BLE001  (whatever an exporter raises; what one gets wrong another may not)
                refusals.append((exporter, error))
                continue
            report.source, report.versions["torch"] = exporter, torch.__version__
            report.warnings += [
                f"{name} could not be used: {first_sentence(error)}" for name, error in refusals
            ]
            return report
    raise _neither(refusals)


def _neither(refusals: Sequence[tuple[str, Exception]]) -> RewriteError:
    """The error of the exporter that came furthest: one of the rewriter's own, which was given a file."""
    own = [error for _, error in refusals if isinstance(error, RewriteError)]
    if own:
        return own[0]
    return ExportError(
        f"PyTorch cannot export the model: {'; '.join(f'{n}: {first_sentence(error)}' for n, error in refusals)}",
        remedy="mend the line that it names, or make an operator of it (rewriter.torch.placeholder)",
    )


@contextmanager
def _evaluating(model: torch.nn.Module) -> Iterator[None]:
    modes = [(module, module.training) for module in model.modules()]
    model.eval()
    try:
        yield
    finally:
        for module, training in modes:
            module.training = training


def _by_dynamo(
    model: torch.nn.Module,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    path: Path,
    dynamic_shapes: Any,
    names: Mapping[str, Any],
    passes: Any,
) -> None:
    with LOCK, quiet(), symbolic_sizes(), torch.no_grad():
        program = torch.export.export(model, args, kwargs, dynamic_shapes=dynamic_shapes, strict=False)
        program = program.run_decompositions(library_and_stops(passes))
        refuse_faults(program)
        try:
            proto = to_onnx(program, names)
        except Exception as error:
            raise untranslated(error, model.forward) from error
    as_placeholders(proto)
    _save(proto, path)


def _save(proto: Any, path: Path) -> None:
    import onnx

    large = proto.ByteSize() > 2**30
    onnx.save(proto, path, save_as_external_data=large, location=f"{path.name}.data" if large else None)


def _by_legacy(
    model: torch.nn.Module,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    path: Path,
    dynamic_shapes: Any,
    names: Mapping[str, Any],
) -> None:
    with quiet(), safe_fallthrough():
        torch.onnx.export(
            model,
            args,
            str(path),
            kwargs=kwargs,
            dynamo=False,
            opset_version=_LEGACY_OPSET,
            dynamic_axes=_axes(dynamic_shapes, names["input_names"], len(args)),
            operator_export_type=torch.onnx.OperatorExportTypes.ONNX_FALLTHROUGH,
            **{name: value for name, value in names.items() if value is not None},
        )


def _axes(
    dynamic_shapes: Any, input_names: Sequence[str] | None, count: int
) -> dict[str, dict[int, str]] | None:
    """``dynamic_shapes`` as the legacy exporter takes it: names of dims, by input and axis."""
    if dynamic_shapes is None:
        return None
    shapes = dynamic_shapes.items() if isinstance(dynamic_shapes, dict) else enumerate(dynamic_shapes)
    names = list(input_names or [f"input_{index}" for index in range(count)])
    made = {}
    for key, axes in shapes:
        name = key if isinstance(key, str) else names[key]
        if isinstance(axes, dict):
            made[name] = {
                axis: getattr(dim, "__name__", None) or f"{name}_{axis}" for axis, dim in axes.items() if dim
            }
    return made


def _ranges(
    path: Path, args: Sequence[Any], kwargs: Mapping[str, Any] | None
) -> dict[str, tuple[float, float]]:
    """The range of each integer input of the example: what indices and tokens may be is not known otherwise."""
    import onnx
    from torch.utils._pytree import tree_leaves

    graph = onnx.load(path, load_external_data=False).graph
    tensors = [leaf for leaf in tree_leaves((args, dict(kwargs or {}))) if isinstance(leaf, torch.Tensor)]
    if len(tensors) != len(graph.input):
        return {}
    return {
        value.name: (int(tensor.min()), int(tensor.max()))
        for value, tensor in zip(graph.input, tensors, strict=True)
        if tensor.numel()
        and not tensor.dtype.is_floating_point
        and not tensor.dtype.is_complex
        and tensor.dtype != torch.bool
    }
