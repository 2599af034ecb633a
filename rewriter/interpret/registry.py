"""Kernels by operator and version."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    #: Given the call and its inputs (None where one is omitted), the result, or a tuple of them.
    Kernel = Callable[..., Any]


class Kernels:
    """The kernels of one group of operators, filled by decorators where they are defined."""

    def __init__(self, domain: str = "") -> None:
        self.domain = domain
        self._entries: dict[str, dict[int, Kernel]] = {}

    def operator(self, *names: str, since: int = 1) -> Callable[[Kernel], Kernel]:
        """The decorated function is the meaning of ``names`` from version ``since`` of the domain on."""

        def mark(kernel: Kernel) -> Kernel:
            for name in names:
                self.add(name, kernel, since)
            return kernel

        return mark

    def add(self, name: str, kernel: Kernel, since: int = 1) -> None:
        versions = self._entries.setdefault(name, {})
        assert since not in versions, f"{name}-{since} is defined twice"
        versions[since] = kernel

    def find(self, name: str, opset: int) -> Kernel | None:
        """The kernel that holds at version ``opset`` of the domain."""
        versions = self._entries.get(name, {})
        return versions.get(max((v for v in versions if v <= opset), default=0))

    def __iter__(self) -> Iterator[tuple[str, tuple[int, ...]]]:
        for name, versions in self._entries.items():
            yield name, tuple(sorted(versions))
