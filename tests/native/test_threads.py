"""Threads: as many as were asked for, none lost in a fork, none in each other's way."""

from __future__ import annotations

import os
import sys
from concurrent.futures import ThreadPoolExecutor
from importlib.util import find_spec

import numpy as np
import pytest

import xlayout_native
from tests.house.tree import printed

ROWS, COLUMNS = 1500, 1300
FLIP = [(0, 0, (0, 0, ((COLUMNS, 1, ROWS), (ROWS, COLUMNS, 1))))]


needs_torch = pytest.mark.skipif(
    not (find_spec("torch") and sys.platform == "linux"), reason="threads of torch for Linux"
)


def transpose(seed: int) -> bool:
    """Whether a transpose by two threads is right."""
    x = np.random.default_rng(seed).integers(0, 1 << 30, (ROWS, COLUMNS), np.int32)
    y = np.empty((COLUMNS, ROWS), np.int32)
    plan = xlayout_native.prepare(FLIP, 4, 1, 1)
    xlayout_native.run(plan, 2, x.ctypes.data, y.ctypes.data)
    return bool((y == x.T).all())


def test_a_fork_starts_threads_of_its_own() -> None:
    code = """
import os
from tests.native.test_threads import transpose
assert transpose(1)
for _ in range(3):
    child = os.fork()
    if not child:
        os._exit(0 if transpose(2) and transpose(3) else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
assert transpose(4)
print("right on both sides")
"""
    assert printed(code) == "right on both sides"


@needs_torch
def test_the_main_thread_shares_openmps_threads_once_torch_is_there() -> None:
    code = """
from concurrent.futures import ThreadPoolExecutor
import xlayout_native as n
from tests.native.test_threads import transpose
assert not n.threads_awake()
import xlayout_torch
assert n.threads_awake() and transpose(1)
with ThreadPoolExecutor(1) as other:
    assert not other.submit(n.threads_awake).result() and other.submit(transpose, 2).result()
print("one team")
"""
    assert printed(code) == "one team"


@needs_torch
def test_a_fork_does_not_wait_for_the_threads_of_its_parent() -> None:
    code = """
import os, torch, xlayout_native as n, xlayout_torch
from tests.native.test_threads import transpose
torch.zeros(1 << 22).add_(1)
assert n.threads_awake() and transpose(1)
child = os.fork()
if not child:
    os._exit(0 if not n.share_threads() and not n.threads_awake() and transpose(2) else 1)
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
assert n.threads_awake() and transpose(3)
print("right on both sides")
"""
    assert printed(code) == "right on both sides"


def test_a_fork_has_large_results_of_its_own() -> None:
    code = """
import os, numpy as np, xlayout as xl
made = xl.matrix_transpose(np.zeros((2048, 2048), np.float32))
child = os.fork()
if not child:
    made[:] = 1
    os._exit(0)
os.waitpid(child, 0)
print(made.any())
"""
    assert printed(code) == "False"


@needs_torch
def test_in_a_fork_no_copy_is_left_to_threads_that_are_not_there() -> None:
    code = """
import os, torch, xlayout as xl
torch.zeros(1 << 24).add_(1)
x = torch.randn(2, 128, 4096)
wanted = x.transpose(0, 1).contiguous()
assert torch.equal(xl.permute_dims(x, (1, 0, 2)), wanted)
child = os.fork()
if not child:
    made = xl.permute_dims(x, (1, 0, 2))
    os._exit(0 if made.numpy().tobytes() == wanted.numpy().tobytes() else 1)
for _ in range(300):
    done, status = os.waitpid(child, os.WNOHANG)
    if done:
        break
    __import__("time").sleep(0.1)
else:
    status = "hangs"
    os.kill(child, 9)
print(status)
"""
    assert printed(code) == "0"


@needs_torch
@pytest.mark.parametrize("way", ["multiprocessing", "os.fork"])
def test_a_process_that_was_forked_before_the_kernel_came_shares_nothing(way: str) -> None:
    code = f"""
import multiprocessing, os, signal, torch
torch.zeros(1 << 22).add_(1)
def inside():
    import xlayout_native as n, xlayout_torch
    from tests.native.test_threads import transpose
    assert not n.share_threads() and not n.threads_awake() and transpose(2)
if {way!r} == "os.fork":
    child = os.fork()
    if not child:
        signal.alarm(30)
        inside()
        os._exit(0)
    print(os.waitpid(child, 0)[1])
else:
    child = multiprocessing.get_context("fork").Process(target=inside)
    child.start()
    child.join(30)
    print(child.exitcode)
"""
    assert printed(code) == "0"


@needs_torch
def test_in_a_fork_no_threads_of_torchs_rival_the_kernel() -> None:
    code = """
import os, torch, xlayout_native as n
from xlayout_torch.native import rivals
torch.set_num_threads(2)
n.threads_awake = lambda: False
child = os.fork()
if not child:
    os._exit(rivals())
print(rivals(), os.waitpid(child, 0)[1])
"""
    assert printed(code) == "True 0"


@needs_torch
def test_a_process_with_a_program_of_its_own_shares_whoever_started_it() -> None:
    inside = "import torch, xlayout_native as n, xlayout_torch; print(n.threads_awake())"
    code = f"""
import os, subprocess, sys
child = os.fork()
if not child:
    os._exit(subprocess.call([sys.executable, "-c", {inside!r}]))
os.waitpid(child, 0)
"""
    assert printed(code) == "True"


@pytest.mark.skipif(sys.platform != "linux", reason="threads are counted as Linux shows them")
@pytest.mark.parametrize(("asked", "meant"), [(-3, 2), (0, 2), (99, 64)])
def test_a_run_takes_what_it_asks_for_or_all_there_can_be(asked: int, meant: int) -> None:
    helpers = _helpers(meant)
    assert _helpers(asked) == helpers
    assert helpers == 1 if meant == 2 else helpers > 1


def _helpers(threads: int) -> int:
    code = f"""
import os, numpy as np, xlayout_native as n
from tests.native.test_threads import FLIP, ROWS, COLUMNS
n.set_threads(2)
x, y = np.zeros((2, ROWS, COLUMNS), np.int32)
before = len(os.listdir("/proc/self/task"))
n.run(n.prepare(FLIP, 4, 1, 1), {threads}, x.ctypes.data, y.ctypes.data)
print(len(os.listdir("/proc/self/task")) - before)
"""
    return int(printed(code))


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere other threads may be asked first")
def test_a_signal_that_the_program_waits_for_is_not_a_helpers() -> None:
    code = """
import os, signal
from tests.native.test_threads import transpose
assert transpose(1)
signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
os.kill(os.getpid(), signal.SIGTERM)
print(signal.sigwait({signal.SIGTERM}).name)
"""
    assert printed(code, OMP_NUM_THREADS="2", OPENBLAS_NUM_THREADS="1") == "SIGTERM"


def test_runs_from_several_python_threads_do_not_mix() -> None:
    with ThreadPoolExecutor(4) as threads:
        assert all(threads.map(transpose, range(12)))


@pytest.mark.parametrize(("given", "threads"), [("3", 3), ("1", 1), ("100000", 64)])
def test_the_usual_variable_sets_the_number(given: str, threads: int) -> None:
    code = "import xlayout_native as n; print(n.get_threads())"
    assert printed(code, OMP_NUM_THREADS=given) == str(threads)


@pytest.mark.parametrize("given", ["", "many", "-2"])
def test_a_variable_without_a_number_means_one_per_processor(given: str) -> None:
    code = "import xlayout_native as n; print(n.get_threads())"
    assert printed(code, OMP_NUM_THREADS=given) == str(min(len(os.sched_getaffinity(0)), 64))


def test_the_number_can_be_set() -> None:
    usual = xlayout_native.get_threads()
    xlayout_native.set_threads(1)
    assert xlayout_native.status().endswith(", 1 thread")
    xlayout_native.set_threads(usual)
    with pytest.raises(ValueError, match="threads: 0; wanted at least 1"):
        xlayout_native.set_threads(0)


@pytest.mark.parametrize("name", xlayout_native.get_isas())
def test_a_variable_forces_the_kernels(name: str) -> None:
    assert printed("import xlayout_native as n; print(n.get_isa())", XLAYOUT_ISA=name) == name


@pytest.mark.parametrize("name", ["OFF", "0"])
def test_a_switch_that_is_misspelt_is_named(name: str) -> None:
    code = """
import warnings
with warnings.catch_warnings(record=True) as said:
    import xlayout_native as n
print(n.available, "|", *[warning.message for warning in said])
"""
    wanted = f"True | XLAYOUT_NATIVE: {name!r}; wanted 'off' or nothing"
    assert printed(code, XLAYOUT_NATIVE=name) == wanted


def test_kernels_that_this_machine_lacks_are_named_and_not_run() -> None:
    code = """
import warnings
with warnings.catch_warnings(record=True) as said:
    import xlayout_native as n
print(n.get_isa(), "|", said[0].message)
"""
    made = printed(code, XLAYOUT_ISA="avx9")
    has = xlayout_native.get_isas()
    assert made == f"{has[0]} | XLAYOUT_ISA: 'avx9'; this machine has {', '.join(has)}"


def test_variables_that_are_empty_are_as_if_unset() -> None:
    code = """
import warnings
warnings.simplefilter("error")
import xlayout_native as n
print(n.get_isa())
"""
    usual = xlayout_native.get_isas()[0]
    assert printed(code, XLAYOUT_ISA="", XLAYOUT_NATIVE="", OMP_NUM_THREADS="") == usual


def test_a_variable_switches_it_off() -> None:
    line = printed("import xlayout_native as n; print(n.status())", XLAYOUT_NATIVE="off")
    assert line == "not in use: switched off by XLAYOUT_NATIVE=off"


def test_no_huge_page_is_asked_for_less_than_one() -> None:
    memory = np.empty(8 << 20, np.uint8)
    assert xlayout_native.huge_pages(memory.ctypes.data, 100) is False


def test_huge_pages_leave_what_is_there() -> None:
    memory = np.random.default_rng(5).integers(0, 256, 9 << 20, np.uint8)
    before = memory.copy()
    granted = xlayout_native.huge_pages(memory.ctypes.data + 5, memory.nbytes - 5)
    assert granted in (True, False)
    assert (memory == before).all()
