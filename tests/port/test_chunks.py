"""Trees that Orbax wrote itself: a chunk is read whole, and `max_ram` knows it."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest

from tests.port.models import refused, same_bytes
from xlayout import port
from xlayout.errors import PortError

CHUNK = 64 * 3 * 4 * 128 * 4  # bytes of the largest stack: queries of three layers in float32
HELD = 2 * CHUNK  # as it is stored and as it is decoded
LEAST = HELD + 128 * 64 * 4 * 2 + 128 * 64 * 2  # a head of it as read, as laid out, as rounded


@pytest.fixture(scope="module")
def tree(wide_llama: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The model as Orbax saves it: each stack of layers is one chunk."""
    import orbax.checkpoint as ocp

    folder = tmp_path_factory.mktemp("orbax")
    port.run(wide_llama, folder / "ours", to="maxtext")
    with ocp.PyTreeCheckpointer() as checkpointer:
        weights = checkpointer.restore(folder / "ours" / "0" / "items")
        checkpointer.save(folder / "theirs" / "0" / "items", weights)
    shutil.copy(folder / "ours" / "config.json", folder / "theirs")
    return folder / "theirs"


def test_a_chunk_that_is_cut_is_part_of_the_bound(
    tree: Path, wide_llama: Path, tmp_path: Path
) -> None:
    text = (
        f"max_ram: {LEAST - 1:,} bytes; one slice of params/params/decoder/layers/self_attention/"
        f"query/kernel beside {HELD:,} for a chunk of params/params/decoder/layers/self_attention/"
        f"query/kernel, which is read whole, needs {LEAST:,}, which is the least that works"
    )
    refused(tree, tmp_path / "out", f"^{re.escape(text)}$", to="hf", max_ram=LEAST - 1)
    report = port.run(tree, tmp_path / "out", to="hf", max_ram=LEAST)
    assert report.plan.buffer_bytes + HELD <= LEAST
    assert same_bytes(wide_llama, tmp_path / "out")
    assert "in buffers, and 786 kB for a chunk that is read whole" in str(report.plan)


def test_a_comparison_counts_the_chunks_of_either(tree: Path, wide_llama: Path) -> None:
    for sides in ((tree, wide_llama), (wide_llama, tree)):
        with pytest.raises(
            PortError, match=r"which is read whole, needs 868,352, which is the lea"
        ):
            port.verify(*sides, max_ram=HELD)
        assert port.verify(*sides, max_ram=868_352).identical


def test_tiles_of_whole_chunks_need_no_more(wide_llama: Path, tmp_path: Path) -> None:
    port.run(wide_llama, tmp_path / "tree", to="maxtext", max_ram="160kB")
    plan = port.plan(tmp_path / "tree", tmp_path / "out", to="hf")
    assert "read whole" not in str(plan)
