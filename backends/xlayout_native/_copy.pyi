"""Copy: the compiled module, which prepares and runs plans of strided copies."""

from collections.abc import Callable, Iterable
from typing import Any

_Loops = tuple[tuple[int, int, int], ...]
_Move = tuple[int, int, tuple[int, int, _Loops]]

_Runs = dict[Any, Callable[..., Any]]
_Run = Callable[..., Any]

def find_by_shape(
    runs: _Runs, x: Any, args: tuple[Any, ...] | None, options: dict[str, Any], /
) -> _Run | None:
    """The function kept for a call with these arguments on an array like `x`, or None.

    If `args` is None, `x` is a tuple of arrays; nothing is found unless they agree in type and
    dtype.
    """

def find_by_place(
    runs: _Runs, x: Any, args: tuple[Any, ...] | None, options: dict[str, Any], /
) -> _Run | None:
    """The same by the type of the sharding instead of the shape; dtypes may differ."""

def keep_by_shape(
    runs: _Runs, x: Any, args: tuple[Any, ...] | None, options: dict[str, Any], run: _Run, /
) -> None:
    """Keep the function for such a call, if the call can be told from others."""

def keep_by_place(
    runs: _Runs,
    x: Any,
    args: tuple[Any, ...] | None,
    options: dict[str, Any],
    run: _Run,
    anywhere: bool,
    /,
) -> None:
    """The same by the type of the sharding instead of the shape; dtypes may differ.

    `anywhere` promises that the sharding makes no difference, which saves asking for it next time.
    """

class Plan:
    """Strided copies, ready to run; an opaque capsule."""

def prepare(moves: Iterable[_Move], itemsize: int, inputs: int, outputs: int, /) -> Plan:
    """A plan from moves (input, output, (from, to, loops)).

    A loop is (n, in stride, out stride). Addresses and strides are in elements of `itemsize` bytes;
    strides may be negative, and on the input side zero.

    Raises:
        ValueError: for a negative count, an output stride of zero, an input or output that does not
            exist, or more than 15 loops in one copy.
        OverflowError: for 2**61 bytes or more.
    """

def run(plan: Plan, threads: int, /, *addresses: int) -> None:
    """Copy between the buffers at these addresses, inputs first, with up to `threads` threads.

    0 threads or fewer stand for the number given to `set_threads`; more than 64 are 64. The buffers
    must hold everything that the plan reaches, which is not checked. The interpreter lock is
    released for large plans.

    Raises:
        TypeError: for a number of addresses other than that of the plan's inputs and outputs.
    """

def run_arrays(plan: Plan, threads: int, /, *arrays: object) -> bool:
    """Copy between arrays that expose a buffer, as numpy's do; whether that was possible.

    If an array is not row-major, or a result is read-only or overlaps another array, nothing is
    written and the answer is False. The arrays must hold everything that the plan reaches, as in
    `run`.

    Raises:
        TypeError: for another number of arrays, and for an object without a buffer.
    """

def run_in_place(plan: Plan, threads: int, address: int, /) -> bool:
    """Permute one buffer in its own memory; False, with nothing written, if that is not supported.

    Supported are transposes of square matrices of elements of 1, 2, 4, 8 or 16 bytes, and
    permutations of at most four million whole blocks of 512 bytes or more. They take less than a
    megabyte of other memory. The plan is from one buffer to one, and permutes what it writes: bytes
    beyond that stay as they are.

    Raises:
        OverflowError: for an address that does not fit a pointer.
    """

def ffi_handler() -> object | None:
    """The function that XLA calls to copy between its own buffers: a capsule for `jax.ffi`.

    None if the module was compiled without the headers of a jaxlib. The call takes any arrays and
    results of one width, and `moves`, an array of int64 that holds for each move its input, output,
    from, to, the number of its loops, and the loops. If moves leave the buffers, the call fails.
    """

def address(array: object, /) -> int:
    """The address of the first element of an array that exposes a buffer, as numpy's do.

    It takes a tenth of the time of `array.ctypes.data`.

    Raises:
        TypeError: for an object without a buffer.
    """

def huge_pages(address: int, nbytes: int, /) -> bool:
    """Ask for huge pages for memory not touched yet; whether granted. A run touches them."""

def set_threads(threads: int, /) -> None:
    """Set what 0 threads stands for; initially OMP_NUM_THREADS, or else one per processor.

    Raises:
        ValueError: below 1.
    """

def get_threads() -> int:
    """What 0 threads stands for."""

def share_threads() -> bool:
    """Let the main thread use the OpenMP that a framework has loaded; whether there is one to use.

    Not in a forked child: there OpenMP would wait for threads that only the parent has.
    """

def threads_awake() -> bool:
    """Whether this thread uses OpenMP's threads."""

def set_thresholds(stream_from: int, threads_from: int, /) -> None:
    """Set from how many bytes on a result bypasses the caches, and threads share the work.

    Threads that are already awake share it from a sixteenth of that on.
    """

def set_intel(whether: bool, /) -> None:
    """Choose whether to copy as is best on Intel's processors; initially, whether this is one.

    Plans that were prepared before keep their tiles.
    """

def get_intel() -> bool:
    """Whether it copies as is best on Intel's processors."""

def set_isa(name: str, /) -> None:
    """Choose the kernels that run from now on.

    Raises:
        ValueError: for a name that is not in `get_isas()`.
    """

def get_isa() -> str:
    """The kernels that run."""

def get_isas() -> list[str]:
    """The kernels this machine can run, widest first.

    Among "avx512vbmi", "avx512", "avx2" and "ssse3", or "neon"; and always "plain".
    """
