"""If, Loop, Scan and SequenceMap with bodies that onnxruntime cannot run: what it would do, done from outside."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from onnx import helper

from rewriter.errors import CannotVerifyError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from onnx import NodeProto

    from rewriter.errors import Where
    from rewriter.execution.held import Held, Values
    from rewriter.execution.numbers import Array
    from rewriter.types import TensorType


@dataclass
class Body:
    """A body: the names of its inputs, how it is run on values for them, and the types of its results."""

    inputs: Sequence[str]
    #: Declared ranks of the inputs, None where unknown.
    ranks: Sequence[int | None]
    run: Callable[[Mapping[str, Held]], list[Held]]
    types: Callable[[], Sequence[TensorType | None]]


@dataclass
class Control:
    """One node with bodies, by attribute name."""

    node: NodeProto
    bodies: Mapping[str, Body]
    values: Values
    where: Where

    def run(self, inputs: Sequence[Held | None]) -> list[Held]:
        """The node's results, by position."""
        run = {"If": self._if, "Loop": self._loop, "Scan": self._scan, "SequenceMap": self._map}
        return run[self.node.op_type](inputs)

    def _if(self, inputs: Sequence[Held | None]) -> list[Held]:
        assert inputs[0] is not None
        branch = "then_branch" if self._flag(inputs[0]) else "else_branch"
        return self.bodies[branch].run({})

    def _loop(self, inputs: Sequence[Held | None]) -> list[Held]:
        body = self.bodies["body"]
        trips = None if not inputs or inputs[0] is None else int(self._item(inputs[0]))
        given = inputs[1] if len(inputs) > 1 else None
        going = True if given is None else self._flag(given)
        carried = [held for held in inputs[2:] if held is not None]
        scanned: list[list[Array]] = [[] for _ in range(len(self.node.output) - len(carried))]
        turn = 0
        # The condition that the body gives counts also where none is given to the node, as in onnxruntime.
        while going and (trips is None or turn < trips):
            head = [self._scalar(np.int64(turn), body.ranks[0]), self._scalar(np.bool_(going), body.ranks[1])]
            results = body.run(dict(zip(body.inputs, [*head, *carried], strict=True)))
            going = self._flag(results[0])
            carried = results[1 : 1 + len(carried)]
            for items, held in zip(scanned, results[1 + len(carried) :], strict=False):
                items.append(self.values.array(held))
            turn += 1
        types = body.types()[1 + len(carried) :]
        return [*carried, *(self._stack(items, 0, kind) for items, kind in zip(scanned, types, strict=False))]

    def _scan(self, inputs: Sequence[Held | None]) -> list[Held]:
        body = self.bodies["body"]
        count = self._ints("num_scan_inputs", 1)[0]
        states = [held for held in inputs[: len(inputs) - count] if held is not None]
        arrays = [self.values.array(held) for held in inputs[len(inputs) - count :] if held is not None]
        axes = self._ints("scan_input_axes", count)
        backward = self._ints("scan_input_directions", count)
        length = arrays[0].shape[axes[0]]
        outputs = len(self.node.output) - len(states)
        scanned: list[list[Array]] = [[] for _ in range(outputs)]
        for turn in range(length):
            slices = [
                self.values.of(array.take(length - 1 - turn if back else turn, axis=axis))
                for array, axis, back in zip(arrays, axes, backward, strict=True)
            ]
            results = body.run(dict(zip(body.inputs, [*states, *slices], strict=True)))
            states, rest = results[: len(states)], results[len(states) :]
            for items, held in zip(scanned, rest, strict=False):
                items.append(self.values.array(held))
        directions = self._ints("scan_output_directions", outputs)
        places = self._ints("scan_output_axes", outputs)
        types = body.types()[len(states) :]
        return [
            *states,
            *(
                self._stack(items[::-1] if back else items, axis, kind)
                for items, back, axis, kind in zip(scanned, directions, places, types, strict=False)
            ),
        ]

    def _map(self, inputs: Sequence[Held | None]) -> list[Held]:
        body = self.bodies["body"]
        given = [held for held in inputs if held is not None]
        whole = [self.values.data(held) for held in given]
        results: list[list[Array]] = [[] for _ in self.node.output]
        for turn in range(len(whole[0])):
            items = [
                self.values.of(data[turn]) if isinstance(data, (list, tuple)) else held
                for held, data in zip(given, whole, strict=True)
            ]
            for found, held in zip(
                results, body.run(dict(zip(body.inputs, items, strict=True))), strict=True
            ):
                found.append(self.values.array(held))
        made = []
        for found, kind in zip(results, body.types(), strict=True):
            element = (
                self._known(kind).dtype if not found else helper.np_dtype_to_tensor_dtype(found[0].dtype)
            )
            made.append(
                self.values.of(
                    found, helper.make_sequence_type_proto(helper.make_tensor_type_proto(element, None))
                )
            )
        return made

    # --- values -----------------------------------------------------------------------------------------------

    def _item(self, held: Held) -> Array:
        return np.asarray(self.values.array(held).reshape(-1)[0])

    def _flag(self, held: Held) -> bool:
        return bool(self._item(held))

    def _scalar(self, value: np.generic, rank: int | None) -> Held:
        """Of one dim where the body declares one, as onnxruntime does."""
        return self.values.of(np.asarray([value] if rank == 1 else value))

    def _ints(self, name: str, count: int) -> list[int]:
        for attribute in self.node.attribute:
            if attribute.name == name:
                return list(attribute.ints) or [attribute.i]
        return [0] * count

    def _stack(self, items: Sequence[Array], axis: int, kind: TensorType | None) -> Held:
        if items:
            try:
                return self.values.of(np.stack(items, axis))
            except ValueError as error:
                raise CannotVerifyError(
                    f"a result has other sizes in another iteration, and onnxruntime would refuse it: {error}",
                    where=self.where,
                ) from error
        known = self._known(kind)
        sizes = [dim if isinstance(dim, int) else 0 for dim in known.shape or ()]
        sizes.insert(axis if axis >= 0 else len(sizes) + 1 + axis, 0)
        return self.values.of(np.zeros(sizes, helper.tensor_dtype_to_np_dtype(known.dtype)))

    def _known(self, kind: TensorType | None) -> TensorType:
        if kind is None:
            raise CannotVerifyError(
                "it runs no iteration, and the element type of a result of its body is unknown",
                where=self.where,
                remedy="declare the types of the body's outputs when exporting",
            )
        return kind
