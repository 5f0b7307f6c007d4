"""A pool of ranks: processes that join one gloo group once, and then run function after function.

They come from a fork server with torch loaded and no thread started, so that a rank costs
milliseconds. A rank that raises, or does not answer, is named.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import tempfile
import traceback
from collections.abc import Callable
from datetime import timedelta
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

__all__ = ["Pool", "Ranks"]

Ranks = Callable[..., list[Any]]
"""What a pool does when it is called."""

_CONTEXT = multiprocessing.get_context("forkserver")
_CONTEXT.set_forkserver_preload(
    ["torch.distributed.tensor", "torch._dynamo.backends.common", "xlayout", "xlayout_torch"]
)


class Pool:
    """Some ranks; `pool(fn, *args)` gives what `fn(rank, *args)` returned on each.

    `timeout`: the seconds for which ranks wait for one another; torch's own by default.
    """

    def __init__(self, ranks: int, timeout: float | None = None) -> None:
        self._folder = tempfile.TemporaryDirectory()
        store = str(Path(self._folder.name) / "store")
        self._pipes: list[Connection] = []
        self._processes = []
        for rank in range(ranks):
            ours, theirs = _CONTEXT.Pipe()
            process = _CONTEXT.Process(
                target=_serve, args=(rank, ranks, store, timeout, theirs), daemon=True
            )
            process.start()
            theirs.close()
            self._pipes.append(ours)
            self._processes.append(process)

    def __call__(self, fn: Callable[..., Any], *args: Any, timeout: float = 60) -> list[Any]:
        answers = self.survivors(fn, *args, timeout=timeout)
        for rank in range(len(self._pipes)):
            if rank not in answers:
                raise AssertionError(f"rank {rank} has died")
        return [answers[rank] for rank in sorted(answers)]

    def survivors(self, fn: Callable[..., Any], *args: Any, timeout: float = 60) -> dict[int, Any]:
        """The answers of the ranks that survive."""
        for pipe in self._pipes:
            pipe.send((fn, args))
        answers = {}
        for rank, pipe in enumerate(self._pipes):
            if not pipe.poll(timeout):
                raise TimeoutError(f"rank {rank} has not answered for {timeout} s")
            with contextlib.suppress(EOFError):
                answers[rank] = pipe.recv()
        for rank, (fine, answer) in answers.items():
            if not fine:
                raise AssertionError(f"rank {rank}:\n{answer}")
        return {rank: answer for rank, (_, answer) in answers.items()}

    def close(self) -> None:
        for pipe in self._pipes:
            with contextlib.suppress(BrokenPipeError):
                pipe.send(None)
        for process in self._processes:
            process.join(timeout=5)
            if process.is_alive():
                process.kill()
        self._folder.cleanup()


def _serve(rank: int, ranks: int, store: str, timeout: float | None, pipe: Connection) -> None:
    import torch
    import torch.distributed as dist

    torch.set_num_threads(1)
    limit = None if timeout is None else timedelta(seconds=timeout)
    dist.init_process_group(
        "gloo", store=dist.FileStore(store, ranks), rank=rank, world_size=ranks, timeout=limit
    )
    while (request := pipe.recv()) is not None:
        fn, args = request
        try:
            pipe.send((True, fn(rank, *args)))
        except BaseException:  # noqa: BLE001 -- it is the other process that reports it
            pipe.send((False, traceback.format_exc()))
    dist.destroy_process_group()
