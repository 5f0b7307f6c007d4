"""Copy: the compiled half, plans of strided copies and how they run."""

from collections.abc import Callable, Iterable
from typing import Any

_Loops = tuple[tuple[int, int, int], ...]
_Move = tuple[int, int, tuple[int, int, _Loops]]

_Runs = dict[Any, Callable[..., Any]]
_Run = Callable[..., Any]

def find_by_shape(
    runs: _Runs, x: Any, args: tuple[Any, ...] | None, options: dict[str, Any], /
) -> _Run | None:
    """What was kept for a call with these arguments on an array like `x`, or None.

    `x` is a tuple of arrays where `args` is None; they are of one type and dtype, or nothing is
    found.
    """

def find_by_place(
    runs: _Runs, x: Any, args: tuple[Any, ...] | None, options: dict[str, Any], /
) -> _Run | None:
    """The same, whatever the shape, by the type of the sharding."""

def keep_by_shape(
    runs: _Runs, x: Any, args: tuple[Any, ...] | None, options: dict[str, Any], run: _Run, /
) -> None:
    """Keep what runs for such a call, if it can be told from others."""

def keep_by_place(
    runs: _Runs,
    x: Any,
    args: tuple[Any, ...] | None,
    options: dict[str, Any],
    run: _Run,
    anywhere: bool,
    /,
) -> None:
    """The same, whatever the shape, by the type of the sharding.

    `anywhere` promises that the sharding makes no difference, and saves asking for it next time.
    """

class Plan:
    """A list of strided copies, ready to run; an opaque capsule."""

def prepare(moves: Iterable[_Move], itemsize: int, inputs: int, outputs: int, /) -> Plan:
    """A plan from moves (input, output, (from, to, loops)).

    A loop is (n, in stride, out stride). Addresses and strides count elements of `itemsize` bytes;
    strides may be negative, and zero on the input side.

    Raises:
        ValueError: for a negative count, an output stride of zero, an input or output that is not
            there, or more than 15 loops in one copy.
        OverflowError: for 2**61 bytes and more.
    """

def run(plan: Plan, threads: int, /, *addresses: int) -> None:
    """Copy between the buffers at these addresses, inputs first, with up to `threads` threads.

    0 threads, and fewer, stand for what `set_threads` said last; more than 64 are 64. The
    addresses must hold what the plan reaches: nothing here can check that. The interpreter lock is
    released for large plans.

    Raises:
        TypeError: for another number of addresses than the plan has inputs and outputs.
    """

def run_arrays(plan: Plan, threads: int, /, *arrays: object) -> bool:
    """Copy between arrays that show their memory, as numpy's do; whether that could be.

    It could not, and nothing is written, where one of them is not row-major, or a result is
    read-only or lies where another array does. The arrays must hold what the plan reaches, as
    addresses must.

    Raises:
        TypeError: for another number of arrays, and for an object that shows no memory.
    """

def run_in_place(plan: Plan, threads: int, address: int, /) -> bool:
    """Permute one buffer in its own memory; False, and nothing written, where it has no such form.

    There is one where rows become columns of square matrices, in elements of 1, 2, 4, 8 or 16
    bytes, and where whole blocks of 512 bytes or more change places, four million at the most. It
    takes less than a megabyte besides the buffer. The plan is from one buffer to one, and permutes
    what it writes: bytes beyond that stay as they are.

    Raises:
        OverflowError: for an address that no pointer holds.
    """

def ffi_handler() -> object | None:
    """What XLA calls to copy between its own buffers: a capsule for `jax.ffi`.

    None where it was compiled without the headers of a jaxlib. The call takes any arrays and
    results of one width, and `moves`, an array of int64 that holds for each move its input, output,
    from, to, the number of its loops, and the loops. Moves that leave the buffers are an error of
    the call.
    """

def address(array: object, /) -> int:
    """Where the first element of an array is that shows its memory, as numpy's do.

    A tenth of the time that `array.ctypes.data` takes.

    Raises:
        TypeError: for an object that shows none.
    """

def huge_pages(address: int, nbytes: int, /) -> bool:
    """Ask for huge pages behind memory not yet touched; whether granted. A run touches them."""

def set_threads(threads: int, /) -> None:
    """What 0 threads stands for; at first OMP_NUM_THREADS, else one per processor.

    Raises:
        ValueError: below 1.
    """

def get_threads() -> int:
    """What 0 threads stands for."""

def share_threads() -> bool:
    """Let the main thread work with OpenMP's threads, which a framework brought; whether it did.

    Not in a child of a fork: there OpenMP waits for threads that only its parent has.
    """

def threads_awake() -> bool:
    """Whether this thread works with OpenMP's threads."""

def set_thresholds(stream_from: int, threads_from: int, /) -> None:
    """Bytes from which a result is written past the caches, and from which threads share it.

    Threads that are awake share from a sixteenth of them on.
    """

def set_isa(name: str, /) -> None:
    """Run these kernels from now on.

    Raises:
        ValueError: for a name that is not in `get_isas()`.
    """

def get_isa() -> str:
    """Which kernels run."""

def get_isas() -> list[str]:
    """The kernels this machine can run, widest first.

    Of "avx512vbmi", "avx512", "avx2" and "ssse3", or "neon"; and "plain" everywhere.
    """
