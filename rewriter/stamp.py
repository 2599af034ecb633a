"""Writes into a model what it needs: exact opset imports, a sentence for people, and the manifest for programs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from onnx import AttributeProto

from rewriter.manifest import KEY, SENTENCE_KEY, Manifest

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from onnx import FunctionProto, GraphProto, ModelProto, NodeProto, OperatorSetIdProto

#: The two spellings of the default domain; runtimes exist that refuse the second.
DEFAULT_DOMAINS = ("", "ai.onnx")


def tidy_opset_imports(model: ModelProto) -> list[str]:
    """Leave the imports of exactly the domains used, the default one spelt ``""``; the domains that went.

    The default domain stays in any case, since runtimes refuse a model without one.
    """
    in_graph = {node.domain for node in nodes_of(model.graph)}
    in_functions: set[str] = set()
    dropped: list[str] = []
    for function in model.functions:
        used = {node.domain for node in nodes_of(function)}
        dropped += _keep_only(function.opset_import, used)
        in_functions |= used | {function.domain}
    for node in _all_nodes(model):
        if node.domain == "ai.onnx":
            node.domain = ""
    dropped += _keep_only(model.opset_import, in_graph | in_functions | {""})
    return sorted(set(dropped))


def write(model: ModelProto, manifest: Manifest) -> None:
    """Put the sentence and the manifest into the model's metadata, in place of earlier ones."""
    for key, value in ((SENTENCE_KEY, sentence(manifest)), (KEY, manifest.to_text())):
        for prop in model.metadata_props:
            if prop.key == key:
                prop.value = value
                break
        else:
            model.metadata_props.add(key=key, value=value)


def sentence(manifest: Manifest) -> str:
    """What was expanded into what, and what is needed to run the model."""
    data = manifest.data
    parts = []
    if data["replaced"]:
        expanded = "; ".join(
            f"{entry['count']} {entry['operator']} into {_listed(entry['into']) or 'nothing'}" for entry in data["replaced"]
        )
        parts.append(f"Expanded {expanded}.")
    needs = [_need(entry) for entry in data["kept"]]
    owned = [f"{entry['domain']}::{entry['name']} version {entry['version']}" for entry in data["runtime_operators"]]
    if owned:
        needs.append(f"a runtime with {_listed(owned)}")
    opset = data["opset_imports"].get("", 0)
    if needs:
        parts.append(f"Requires {_listed(needs)}; all other operators are standard ONNX (opset {opset}).")
    else:
        parts.append(f"Standard ONNX operators only (opset {opset}): no custom operators needed.")
    return " ".join(parts)


def nodes_of(body: GraphProto | FunctionProto) -> Iterator[NodeProto]:
    """The nodes of a graph or function and of the bodies inside it."""
    for node in body.node:
        yield node
        for attribute in node.attribute:
            if attribute.type == AttributeProto.GRAPH:
                yield from nodes_of(attribute.g)
            elif attribute.type == AttributeProto.GRAPHS:
                for graph in attribute.graphs:
                    yield from nodes_of(graph)


def _all_nodes(model: ModelProto) -> Iterator[NodeProto]:
    yield from nodes_of(model.graph)
    for function in model.functions:
        yield from nodes_of(function)


def _keep_only(imports: Iterable[OperatorSetIdProto], used: set[str]) -> list[str]:
    """Drop the imports of other domains from the repeated field; the domains that went."""
    used = {"" if domain in DEFAULT_DOMAINS else domain for domain in used}
    kept: list[OperatorSetIdProto] = []
    dropped: list[str] = []
    for opset in imports:
        if opset.domain in DEFAULT_DOMAINS:
            opset.domain = ""
        if opset.domain in used:
            kept.append(type(opset).FromString(opset.SerializeToString()))
        else:
            dropped.append(opset.domain)
    del imports[:]  # type: ignore[attr-defined]
    imports.extend(kept)  # type: ignore[attr-defined]
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
