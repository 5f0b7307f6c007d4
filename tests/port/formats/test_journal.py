"""A sink with a key goes on where an interrupted one stopped, and trusts only what it verified."""

from __future__ import annotations

import errno
import os
import resource
import shutil
from contextlib import suppress
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorstore

from xlayout.errors import FormatError, PortError
from xlayout.port.formats import TensorSpec, create_sink, numpy_dtype, open_source
from xlayout.port.formats.journal import JOURNAL, Journal, checksum
from xlayout.port.formats.tensorstore_specs import store_spec

SPECS = {"a": TensorSpec("int8", (4,)), "b": TensorSpec("bfloat16", (2, 3))}
FORMATS = ["safetensors", "maxtext", "dcp"]


def interrupted(out: Path, format_: str, key: str | None = "key") -> None:
    """Write `a`, and stop."""
    with suppress(KeyboardInterrupt), create_sink(out, format_, SPECS, key=key) as sink:
        sink.write("a", np.arange(4, dtype=np.int8))
        raise KeyboardInterrupt


def finish(out: Path, format_: str, key: str | None) -> list[str]:
    """Resume and write ones where nothing is held; return what was held."""
    found = []
    with create_sink(out, format_, SPECS, key=key) as sink:
        for name, spec in SPECS.items():
            array = np.empty(spec.shape, numpy_dtype(spec.dtype))
            if sink.holds(name, tuple(map(slice, spec.shape)), array):
                found.append(name)
            else:
                sink.write(name, np.ones_like(array))
        sink.commit()
    assert list(out.parent.iterdir()) == [out]
    return found


@pytest.mark.parametrize("format_", FORMATS)
@pytest.mark.parametrize(("key", "kept"), [("key", ["a"]), ("other", []), (None, [])])
def test_the_same_key_goes_on(tmp_path: Path, format_: str, key: str | None, kept: list) -> None:
    interrupted(tmp_path / "out", format_)
    assert finish(tmp_path / "out", format_, key) == kept
    with open_source(tmp_path / "out") as source:
        assert source.read("a").tolist() == ([0, 1, 2, 3] if kept else [1] * 4)
        assert source.read("b").astype(int).tolist() == [[1] * 3] * 2


def test_nothing_of_another_plan_appears(tmp_path: Path) -> None:
    interrupted(tmp_path / "out", "maxtext")
    with create_sink(tmp_path / "out", "maxtext", {"b": SPECS["b"]}, key="other") as sink:
        sink.write("b", np.ones((2, 3), numpy_dtype("bfloat16")))
        sink.commit()
    store = tensorstore.KvStore.open(store_spec(tmp_path / "out/0/items")).result()
    assert {key.partition(b"/")[0] for key in store.list().result()} == {b"b"}


def test_without_a_key_nothing_is_left(tmp_path: Path) -> None:
    interrupted(tmp_path / "out", "safetensors", key=None)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("format_", FORMATS)
def test_what_is_held_counts_as_written(tmp_path: Path, format_: str) -> None:
    interrupted(tmp_path / "out", format_)
    with create_sink(tmp_path / "out", format_, SPECS, key="key") as sink:
        array, region = np.empty(4, np.int8), (slice(0, 4),)
        assert sink.holds("a", region, array)
        assert array.tolist() == [0, 1, 2, 3]
        with pytest.raises(PortError, match="written before"):
            sink.write("a", array)


def test_zeros_that_nobody_wrote_are_not_held(tmp_path: Path) -> None:
    """Absent chunks of a zarr array read as zeros, whose sum a journal might contain."""
    interrupted(tmp_path / "out", "maxtext")
    (stage,) = tmp_path.iterdir()
    zeros = np.zeros((2, 3), numpy_dtype("bfloat16"))
    journal = Journal(stage, "key")
    journal.note("b", ((0, 2), (0, 3)), checksum(zeros))
    journal.close()
    assert finish(tmp_path / "out", "maxtext", "key") == ["a"]


def test_what_tensorstore_was_writing_when_a_run_was_killed_is_not_published(
    tmp_path: Path,
) -> None:
    interrupted(tmp_path / "out", "maxtext")
    (stage,) = tmp_path.iterdir()
    items = stage / "output/0/items"
    for torn in (items / "manifest.ocdbt.__lock", items / "d" / "0123456789abcdef.__lock"):
        torn.write_bytes(b"half a chunk")
    assert finish(tmp_path / "out", "maxtext", "key") == ["a"]
    assert not list((tmp_path / "out").rglob("*.__lock"))


def elements(out: Path, *, stop: bool) -> int:
    """Write ones an element at a time, in the order of their keys; return how many were held."""
    one, held = np.ones(1, np.int8), 0
    specs = {"a": TensorSpec("int8", (600,))}
    with create_sink(out, "maxtext", specs, chunks={"a": (1,)}, key="key") as sink:
        for start in sorted(range(600), key=str):
            region = (slice(start, start + 1),)
            if stop and start == 99:
                raise KeyboardInterrupt
            if sink.holds("a", region, np.empty_like(one)):
                held += 1
            else:
                sink.write("a", one, region)
        sink.commit()
    return held


def test_a_store_with_broken_nodes_is_written_again(tmp_path: Path) -> None:
    """Intact nodes suffice to open the array, but a write next to the broken ones reads them."""
    with suppress(KeyboardInterrupt):
        elements(tmp_path / "out", stop=True)
    (stage,) = tmp_path.iterdir()
    files = sorted((stage / "output/0/items/d").iterdir(), key=lambda file: file.stat().st_mtime_ns)
    for file in files[1:-1]:
        file.write_bytes(bytes(file.stat().st_size))
    assert elements(tmp_path / "out", stop=False) == 0
    assert list(tmp_path.iterdir()) == [tmp_path / "out"]
    with open_source(tmp_path / "out") as source:
        assert source.read("a").tolist() == [1] * 600


@pytest.mark.parametrize("damage", ["empty", "half", "gone"])
def test_a_store_is_finished_whichever_of_its_files_is_lost(tmp_path: Path, damage: str) -> None:
    """The last chunk of each row reaches over the edge, and is read before it is overwritten."""
    specs = {"a": TensorSpec("float32", (20, 45))}
    rows = np.arange(900, dtype=np.float32).reshape(20, 45)

    def write(stop: int) -> None:
        with create_sink(
            tmp_path / "out", "maxtext", specs, chunks={"a": (1, 40)}, key="k"
        ) as sink:
            for row, cut in product(range(20), (slice(0, 40), slice(40, 45))):
                region, tile = (slice(row, row + 1), cut), rows[row : row + 1, cut]
                if not sink.holds("a", region, np.empty_like(tile)):
                    sink.write("a", np.ascontiguousarray(tile), region)
                if row == stop:
                    raise KeyboardInterrupt
            sink.commit()

    with suppress(KeyboardInterrupt):
        write(stop=18)
    (stage,) = tmp_path.iterdir()
    shutil.copytree(stage, saved := tmp_path.parent / f"{tmp_path.name}-saved")
    for file in sorted(path.relative_to(saved) for path in saved.glob("output/0/items/d/*")):
        whole = (stage / file).read_bytes()
        (stage / file).unlink()
        if damage != "gone":
            (stage / file).write_bytes(whole[: len(whole) // 2 if damage == "half" else 0])
        write(stop=20)
        with open_source(tmp_path / "out") as source:
            assert np.array_equal(source.read("a"), rows)
        shutil.rmtree(tmp_path / "out")
        shutil.copytree(saved, stage)


@pytest.mark.parametrize("step", ["Context", "open"])
def test_a_store_that_cannot_be_opened_for_now_is_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    """Before its nodes are listed, or before its arrays are opened, files run out."""
    interrupted(tmp_path / "out", "maxtext")
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    call = getattr(tensorstore, step)

    def starve(*args: Any, **options: Any) -> Any:
        resource.setrlimit(resource.RLIMIT_NOFILE, (0, hard))
        return call(*args, **options)

    with monkeypatch.context() as patch:
        patch.setattr(tensorstore, step, starve)
        try:
            with pytest.raises(OSError, match=os.strerror(errno.EMFILE)) as caught:
                create_sink(tmp_path / "out", "maxtext", SPECS, key="key")
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert (caught.value.errno, caught.value.filename) == (errno.EMFILE, str(tmp_path / "out"))
    assert "tensorstore_spec" not in str(caught.value)
    assert finish(tmp_path / "out", "maxtext", "key") == ["a"]


def test_a_store_that_breaks_under_a_run_is_refused(tmp_path: Path) -> None:
    with create_sink(tmp_path / "out", "maxtext", SPECS, key="key") as sink:
        (stage,) = tmp_path.iterdir()
        shutil.rmtree(stage / "output/0/items/d")
        with pytest.raises(FormatError, match=r"out: NOT_FOUND: Error writing"):
            sink.write("a", np.arange(4, dtype=np.int8))
    assert not list(tmp_path.iterdir())


def test_a_file_that_grew_is_cut_to_size(tmp_path: Path) -> None:
    interrupted(tmp_path / "out", "safetensors")
    (stage,) = tmp_path.iterdir()
    with (stage / "output/model.safetensors").open("ab") as file:
        file.write(b"more")
    assert finish(tmp_path / "out", "safetensors", "key") == ["a"]
    with open_source(tmp_path / "out") as source:
        assert source.read("a").tolist() == [0, 1, 2, 3]


@pytest.mark.parametrize(
    "text", ["", "{", "[]", '["key"', '["key"]x', "null\n", '"key"\n', "\xff\n"]
)
def test_a_journal_that_is_none_is_somebody_elses(tmp_path: Path, text: str) -> None:
    (tmp_path / JOURNAL).write_text(text)
    assert not Journal.belongs(tmp_path, "key")
    journal = Journal(tmp_path, "key")
    journal.note("a", (), 1)
    journal.close()
    with (tmp_path / JOURNAL).open("a") as file:
        file.write('["b", [1], 2]\n["b", [["x", 1]], 2]\n["b", {}, 2]\n["b", []]\n')
    assert Journal.belongs(tmp_path, "key")
    assert Journal(tmp_path, "key").claim("a", ()) == 1
    assert Journal(tmp_path, "other").claim("a", ()) is None
