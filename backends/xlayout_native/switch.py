"""Switch: doing without the kernel for a while, although it is there."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from contextvars import ContextVar

__all__ = ["WATCHERS", "switched", "wanted"]

WATCHERS: list[Callable[[bool], AbstractContextManager[object]]] = []
"""Contexts to enter with the switch: a compiler that caches its results has to know of it."""

_wanted = ContextVar("xlayout_native.wanted", default=True)


wanted: Callable[[], bool] = _wanted.get
"""Whether copies may go to the kernel, here and now.

>>> with switched(False):
...     wanted()
False
"""


@contextmanager
def switched(on: bool) -> Iterator[None]:
    """Whether, inside this context, copies of this thread may go to the kernel."""
    with ExitStack() as stack:
        for watcher in WATCHERS:
            stack.enter_context(watcher(on))
        stack.callback(_wanted.reset, _wanted.set(on))
        yield
