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
from rewriter.torch.example import Example
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

    ``args`` and ``kwargs`` are one example of what ``model`` takes.  ``dynamic_shapes`` is that of ``torch.export``; an
    open size may be given by its name there (``{0: "batch"}``).
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

    example = Example(model, args, kwargs or {}, dynamic_shapes, input_names)
    if options.get("verify", True):
        options["against"] = example.called if against is None else against
    names = {"input_names": input_names, "output_names": output_names}
    refusals: list[tuple[str, Exception]] = []
    with _evaluating(model), scratch_folder() as folder:
        path = folder / "exported.onnx"
        for dynamo in (True, False):
            exporter = f"torch.onnx.export(dynamo={dynamo})"
            try:
                if dynamo:
                    _by_dynamo(example, path, names, passes)
                else:
                    _by_legacy(example, path, output_names)
                report = rewrite(path, target, passes=passes, **{**_drawn_as(example, path), **options})
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


def _by_dynamo(example: Example, path: Path, names: Mapping[str, Any], passes: Any) -> None:
    model = example.model
    with LOCK, quiet(), symbolic_sizes(), torch.no_grad():
        program = torch.export.export(
            model, example.args, example.kwargs, dynamic_shapes=example.dynamic_shapes, strict=False
        )
        program = program.run_decompositions(library_and_stops(passes))
        refuse_faults(program)
        try:
            proto = to_onnx(program, names)
        except Exception as error:
            raise untranslated(error, model.forward) from error
    as_placeholders(proto)
    example.name_sizes(proto)
    _save(proto, path)


def _save(proto: Any, path: Path) -> None:
    import onnx

    large = proto.ByteSize() > 2**30
    onnx.save(proto, path, save_as_external_data=large, location=f"{path.name}.data" if large else None)


def _by_legacy(example: Example, path: Path, output_names: Sequence[str] | None) -> None:
    with quiet(), safe_fallthrough():
        torch.onnx.export(
            example.flat(),
            tuple(item.tensor for item in example.inputs),
            str(path),
            dynamo=False,
            opset_version=_LEGACY_OPSET,
            input_names=[item.name for item in example.inputs],
            output_names=output_names,
            dynamic_axes={item.name: dict(item.open) for item in example.inputs if item.open},
            operator_export_type=torch.onnx.OperatorExportTypes.ONNX_FALLTHROUGH,
        )


def _drawn_as(example: Example, path: Path) -> dict[str, Any]:
    """Options of the verification: integers are drawn from the range of the example's."""
    import onnx

    there = {value.name for value in onnx.load(path, load_external_data=False).graph.input}
    return {"input_ranges": {name: ends for name, ends in example.ranges.items() if name in there}}
