"""Switch: doing without the kernel for a while, although it is there."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from contextvars import ContextVar

__all__ = ["WATCHERS", "switched", "wanted"]

WATCHERS: list[Callable[[bool], AbstractContextManager[object]]] = []
"""What else is to be entered with the switch: a compiler that remembers its results has to know."""

_wanted = ContextVar("xlayout_native.wanted", default=True)


wanted: Callable[[], bool] = _wanted.get
"""Whether copies may go to the kernel, here and now.

>>> with switched(False):
...     wanted()
False
"""


@contextmanager
def switched(on: bool) -> Iterator[None]:
    """Inside, copies of this thread may go to the kernel or may not."""
    with ExitStack() as stack:
        for watcher in WATCHERS:
            stack.enter_context(watcher(on))
        stack.callback(_wanted.reset, _wanted.set(on))
        yield
