"""Writes into a model what it needs: exact opset imports, a sentence for people, and the manifest for programs."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from rewriter.domains import normal_domain, runtime_of
from rewriter.graph.opsets import operators
from rewriter.graph.scopes import called_function, function_key, function_scope, main_scope
from rewriter.manifest import KEY, SENTENCE_KEY, Manifest
from rewriter.report import Declared

if TYPE_CHECKING:
    from collections.abc import Collection, MutableSequence

    from onnx import ModelProto, OperatorSetIdProto

    from rewriter.graph.scopes import Scope


def tidy_opset_imports(model: ModelProto) -> list[str]:
    """Leave the imports of exactly the domains used, the default one spelt ``""``; the domains that went, if any.

    The default domain stays in any case, since runtimes refuse a model without one.
    """
    used = _domains(main_scope(model)) | {""}
    dropped: list[str] = []
    for function in model.functions:
        inside = _domains(function_scope(function))
        dropped += _keep_only(function.opset_import, inside)
        used |= inside | {normal_domain(function.domain)}
    for training in model.training_info:
        for graph in (training.initialization, training.algorithm):
            used |= {normal_domain(node.domain) for node in graph.node}
    dropped += _keep_only(model.opset_import, used)
    return sorted(set(dropped))


def write(model: ModelProto, manifest: Manifest) -> None:
    """Put the sentence and the manifest into the model's metadata, in place of earlier ones."""
    for key, value in ((SENTENCE_KEY, sentence(manifest)), (KEY, manifest.to_text())):
        places = [at for at, prop in enumerate(model.metadata_props) if prop.key == key]
        for at in reversed(places[1:]):
            del model.metadata_props[at]
        if places:
            model.metadata_props[places[0]].value = value
        else:
            model.metadata_props.add(key=key, value=value)


def sentence(manifest: Manifest) -> str:
    """What was expanded into what, and what is needed to run the model."""
    data = manifest.data
    parts = []
    if data["replaced"]:
        expanded = "; ".join(
            f"{entry['count']} {entry['operator']} into {_listed(entry['into']) or 'nothing'}"
            for entry in data["replaced"]
        )
        parts.append(f"Expanded {expanded}.")
    if data.get("functions"):
        calls = "; ".join(
            f"{entry['count']} {entry['operator']} of {_listed(entry['into']) or 'nothing'}"
            for entry in data["functions"]
        )
        parts.append(f"Calls model-local functions: {calls}.")
    if data.get("opset_before") is not None:
        parts.append(f"Brought from opset {data['opset_before']} to {data['opset_imports'].get('', 0)}.")
    needs = [_need(entry) for entry in data["kept"]]
    owned = [
        f"{entry['domain']}::{entry['name']} version {entry['version']}"
        + (f" from {entry['library']['file']}" if isinstance(entry.get("library"), dict) else "")
        for entry in data["runtime_operators"]
    ]
    if data.get("functions"):
        needs.append("a runtime with model-local functions, or with the operators that they define")
    if owned:
        needs.append(f"a runtime with {_listed(owned)}")
    opset = data["opset_imports"].get("", 0)
    if needs:
        parts.append(f"Requires {_listed(needs)}; all other operators are standard ONNX (opset {opset}).")
    else:
        parts.append(f"Standard ONNX operators only (opset {opset}): no custom operators needed.")
    return " ".join(parts)


def declared(model: ModelProto, kept: Collection[tuple[str, str]]) -> tuple[list[Declared], list[Declared]]:
    """The operators outside the standard that ``model`` holds: those in ``kept``, and those of runtimes.

    A call to a function of the model is none, whatever its domain.
    """
    if not kept and not any(runtime_of(normal_domain(domain)) for domain, _ in operators(model)):
        return [], []
    functions = {function_key(function) for function in model.functions}
    counts: Counter[tuple[str, str, int]] = Counter()
    for root in (main_scope(model), *map(function_scope, model.functions)):
        for scope in root.walk():
            for node in scope.graph.node:
                domain = normal_domain(node.domain)
                if called_function(node) in functions:
                    continue
                if (domain, node.op_type) in kept or runtime_of(domain) is not None:
                    counts[domain, node.op_type, scope.opsets.get(domain, 1)] += 1
    found = [
        Declared(domain, name, version, count) for (domain, name, version), count in sorted(counts.items())
    ]
    return (
        [operator for operator in found if (operator.domain, operator.name) in kept],
        [operator for operator in found if (operator.domain, operator.name) not in kept],
    )


def _domains(root: Scope) -> set[str]:
    """The domains of the nodes in a scope and its bodies, each node's default domain now spelt ``""``."""
    found = set()
    for scope in root.walk():
        for node in scope.graph.node:
            domain = normal_domain(node.domain)
            if domain != node.domain:
                # OpenVINO and others refuse "ai.onnx" on a node.
                node.domain = domain
            found.add(domain)
    return found


def _keep_only(imports: MutableSequence[OperatorSetIdProto], used: set[str]) -> list[str]:
    """Drop the imports of other domains, and repetitions, from the repeated field; the domains that went."""
    kept: dict[tuple[str, int], OperatorSetIdProto] = {}
    dropped: list[str] = []
    for opset in imports:
        domain = normal_domain(opset.domain)
        if domain in used:
            copy = type(opset).FromString(opset.SerializeToString())
            copy.domain = domain
            kept.setdefault((domain, opset.version), copy)
        else:
            dropped.append(domain)
    del imports[:]
    imports.extend(kept.values())
    return dropped


def _need(entry: dict[str, object]) -> str:
    library = entry["library"]
    text = f"the custom operator {entry['domain']}::{entry['name']} version {entry['version']}"
    return f"{text} from {library['file']}" if isinstance(library, dict) else text


def _listed(items: list[str]) -> str:
    """``a, b and c``."""
    if len(items) < 2:
        return "".join(items)
    return f"{', '.join(items[:-1])} and {items[-1]}"
