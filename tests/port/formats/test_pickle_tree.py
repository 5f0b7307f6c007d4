"""A pickle is read as data: nothing that it names is imported, and nothing in it is run."""

from __future__ import annotations

import contextlib
import os
import pickle
import pickletools
import re
import subprocess
from collections import OrderedDict
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from xlayout.errors import FormatError
from xlayout.port.formats.base import TensorSpec
from xlayout.port.formats.dcp_metadata import Chunk, Item
from xlayout.port.formats.dcp_metadata_write import render_metadata
from xlayout.port.formats.dcp_names import ALLOWED
from xlayout.port.formats.pickle_tree import _STEPS, Made, Name, Stored, read_pickle, show
from xlayout.port.formats.pickle_write import write_pickle

PATH = f"{type(Path()).__module__}.PosixPath"
"""What pickles call a path: in Python 3.13 its class is in another module, and takes it whole."""

plain = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=300) | st.floats(allow_nan=False),
    lambda inner: (
        st.lists(inner, max_size=5)
        | st.lists(inner, max_size=5).map(tuple)
        | st.dictionaries(st.text(max_size=3) | st.integers(), inner, max_size=5)
    ),
    max_leaves=20,
)


@given(value=plain, protocol=st.integers(2, 5))
def test_what_is_plain_comes_out_as_it_went_in(value: object, protocol: int) -> None:
    assert read_pickle(pickle.dumps(value, protocol), (), where="x") == value


@pytest.mark.parametrize("protocol", [2, 3, 4, 5])
def test_long_texts_bytes_and_numbers_and_shared_parts(protocol: int) -> None:
    shared = [1, 2]
    value = {"a": "é" * 70_000, "b": [2**2000, -(2**70), -1, 300, 70_000], "c": [shared] * 300}
    value["d"] = list(map(str, range(400))) * 2
    tree = read_pickle(pickle.dumps(value, protocol), (), where="x")
    assert tree == value
    assert tree["c"][0] is tree["c"][299]
    if protocol > 2:
        raw = [b"", b"x" * 300, b"y" * 70_000]
        assert read_pickle(pickle.dumps(raw, protocol), (), where="x") == raw


def test_lengths_of_eight_bytes_are_read() -> None:
    """As picklers write them from 4 GiB on."""
    length = (2).to_bytes(8, "little")
    raw = b"\x80\x04\x8d" + length + "é".encode() + b"\x8e" + length + b"ab\x86."
    assert read_pickle(raw, (), where="x") == pickle.loads(raw) == ("é", b"ab")


written = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=9),
    lambda inner: (
        st.lists(inner, max_size=5)
        | st.lists(inner, max_size=5).map(tuple)
        | st.dictionaries(st.text(max_size=3) | st.integers(), inner, max_size=5)
    ),
    max_leaves=20,
)


@given(value=written)
def test_python_reads_what_we_write(value: object) -> None:
    assert pickle.loads(write_pickle(value)) == value


def test_what_we_write_is_written_again_as_it_is_read() -> None:
    raw = render_metadata(
        {"x": (TensorSpec("int8", (2,)), [Chunk(((0, 2),), Item("__0_0.distcp", 0, 900))])}
    )
    assert write_pickle(read_pickle(raw, ALLOWED, where="x")) == raw


def test_a_text_or_a_name_is_written_once() -> None:
    texts = [f"a long text, number {n}" for n in range(300)]  # more than have a number of one byte
    raw = write_pickle([*texts, *texts])
    assert pickle.loads(raw) == read_pickle(raw, (), where="x") == [*texts, *texts]
    assert raw.count(b"number 7") == len([text for text in texts if "number 7" in text])
    alike = write_pickle(["collections.OrderedDict", Made(Name("collections.OrderedDict"), ())] * 2)
    assert pickle.loads(alike) == ["collections.OrderedDict", OrderedDict()] * 2
    assert alike.count(b"OrderedDict") == 2


def test_integers_take_no_more_bytes_than_they_need() -> None:
    sizes = {0: 1, 255: 1, 256: 4, -1: 4, 2**31 - 1: 4, -(2**31): 4, 2**31: 6, -(2**31) - 1: 6}
    for value, size in sizes.items():
        raw = write_pickle(value)
        assert pickle.loads(raw) == value
        assert len(raw) == len(write_pickle(0)) - 1 + size


def test_objects_and_calls_are_named_and_not_made() -> None:
    tree = read_pickle(pickle.dumps(Path("a/b")), {PATH}, where="x")
    assert isinstance(tree, Made)
    assert (tree.what, "/".join(tree.args), tree.new) == (PATH, "a/b", False)
    assert isinstance(tree.what, Name)
    assert read_pickle(pickle.dumps(OrderedDict()), {"collections.OrderedDict"}, where="x") == {}
    again = pickle.loads(write_pickle(tree))
    assert again == Path("a/b")


def test_a_dict_that_is_made_of_pairs_is_not_read_as_an_empty_one() -> None:
    raw = write_pickle(Made(Name("collections.OrderedDict"), ([("a", 1)],)))
    assert pickle.loads(raw) == OrderedDict(a=1)
    tree = read_pickle(raw, {"collections.OrderedDict"}, where="x")
    assert isinstance(tree, Made)
    assert tree.args == ([("a", 1)],)


class Evil:
    def __init__(self, *call: Any) -> None:
        self.call = call

    def __reduce__(self) -> tuple[Any, ...]:
        return self.call[0], self.call[1:]


CALLS = {
    "posix.system": (os.system, "touch {file}"),
    "builtins.eval": (eval, "__import__('pathlib').Path('{file}').touch()"),
    "builtins.exec": (exec, "import pathlib; pathlib.Path('{file}').touch()"),
    "subprocess.check_output": (subprocess.check_output, ["touch", "{file}"]),
}


@pytest.mark.parametrize("protocol", [2, 3, 4, 5])
@pytest.mark.parametrize("name", CALLS)
def test_a_name_that_has_no_place_is_refused_and_nothing_is_run(
    tmp_path: Path, name: str, protocol: int
) -> None:
    file = tmp_path / "owned"
    what, call = CALLS[name]
    filled = (
        [a.format(file=file) for a in call] if isinstance(call, list) else call.format(file=file)
    )
    raw = pickle.dumps([Evil(what, filled)], protocol)
    pickle.loads(raw)
    assert file.exists(), "the attack works on pickle itself"
    file.unlink()
    old = {"builtins": "__builtin__", "subprocess": "commands"} if protocol == 2 else {}
    said = ".".join(old.get(part, part) for part in name.split("."))
    text = f"f.pkl: names '{said}', which has no place in it; nothing was run"
    with pytest.raises(FormatError, match=f"^{re.escape(text)}$"):
        read_pickle(raw, {"torch.Size"}, where="f.pkl")
    assert not file.exists()


def test_not_even_what_is_allowed_is_run(tmp_path: Path) -> None:
    file = tmp_path / "owned"
    raw = pickle.dumps(Evil(os.system, f"touch {file}"))
    tree = read_pickle(raw, {"posix.system"}, where="x")
    assert (tree.what, tree.args) == ("posix.system", (f"touch {file}",))
    assert not file.exists()


@pytest.mark.parametrize(
    ("raw", "text"),
    [
        (b"", "cut short at byte 0"),
        (b"\x80\x02N", "cut short at byte 3"),
        (b"\x80\x02N.N", "1 bytes after its end; wanted none"),
        (b"\x80\x02NN.", "byte 5: 'too many values to unpack (expected 1)'"),
        (b"\x80\x02.", "byte 3: 'not enough values to unpack (expected 1, got 0)'"),
        (b"\x80\x02X\xff\xff\xff\xffa.", "cut short at byte 9"),
        (b"\x80\x04\x8d" + b"\xff" * 8 + b"a.", "cut short at byte 13"),
        (b"\x80\x04\x8e" + b"\xff" * 8 + b"a.", "cut short at byte 13"),
        (b"\x80\x04\x95" + b"\xff" * 7, "cut short at byte 10"),
        (b"\x80\x02\x8a\xffa.", "cut short at byte 6"),
        (b"\x80\x02X\x01\x00\x00\x00\xff.", "byte 8: \"'utf-8' codec can't decode byte 0xff"),
        (b"\x80\x02h\x00.", "byte 4: '0'; wanted a pickle as picklers write them"),
        (b"\x80\x02t.", "byte 3: 'pop from empty list'"),
        (b"\x80\x02\x85.", "byte 3: 'a tuple of more than there is'"),
        (b"\x80\x02K\x01K\x02a.", "byte 7: 'no list to add to'"),
        (b"\x80\x02](K\x01e(NNu.", "byte 11: 'no dict to add to'"),
        (b"\x80\x02}(NNu.", "byte 7: 'a key that is a NoneType'"),
        (b"\x80\x02}()Nu.", "byte 7: 'a key that is a tuple'"),
        (b"\x80\x02}(K\x01u.", "byte 7: 'zip() argument 2 is shorter than argument 1'"),
        (b"\x80\x02X\x01\x00\x00\x00f)R.", "byte 10: 'a call of what is no name'"),
        (b"\x80\x02ctorch\nSize\nNR.", "byte 16: 'a call of what is no name'"),
        (b"\x80\x02N}b.", "byte 5: 'a state for what has none'"),
        (b"\x80\x02NN\x93.", "names '?', which has no place in it"),
        (b"\x80\x02ctorch", "byte 3: the line does not end"),
        (b"\x80\x02I1\n.", "byte 2: the instruction b'I'; wanted one that picklers of protocol 2"),
        (b"\x80\x02\x82\x01.", "the instruction b'\\x82'; wanted"),
        (b"\x80\x02\x8b\x01\0\0\0a.", "the instruction b'\\x8b'; wanted"),
        (b"\x80\x02itorch\nSize\n.", "the instruction b'i'; wanted"),
    ],
)
def test_refuses_what_is_no_pickle(raw: bytes, text: str) -> None:
    with pytest.raises(FormatError, match=f"^x: .*{re.escape(text)}"):
        read_pickle(raw, {"torch.Size"}, where="x")


def test_numbers_that_would_take_all_memory_take_none() -> None:
    """Python's own unpickler allocates as many memo slots as a memo index asks for."""
    raw = b"\x80\x04Nr\xff\xff\xff\xff."
    assert read_pickle(raw, (), where="x") is None


def test_depth_does_not_end_the_process() -> None:
    deep = b"\x80\x02)" + b"\x85" * 300_000
    assert show(read_pickle(deep + b".", (), where="x")) == "((((...),),),)"
    with pytest.raises(FormatError, match="a key that is a tuple"):
        read_pickle(b"\x80\x02}" + deep[2:] + b"Ns.", (), where="x")
    doubled = b"".join(bytes([*b"h", n, *b"h", n, *b"\x86q", n + 1]) for n in range(60))
    shared = read_pickle(b"\x80\x02()q\x00" + doubled + b"t.", (), where="x")
    assert len(show(shared)) < 500


def test_what_is_shared_by_its_own_parts_is_shown() -> None:
    raw = b"\x80\x02ctorch\nSize\n)Rq\x00}X\x01\x00\x00\x00ah\x00sb."
    tree = read_pickle(raw, {"torch.Size"}, where="x")
    assert tree.state["a"] is tree
    assert show(tree) == "torch.Size(…)"


@given(raw=st.binary(max_size=40), at=st.integers(0, 200))
def test_any_bytes_are_read_or_refused(raw: bytes, at: int) -> None:
    good = pickle.dumps({"a": (1, [2.0, "b"], Path("x")), "c": 2**40})
    broken = good[:at] + raw + good[at + len(raw) :]
    for candidate in (raw, broken, b"\x80\x04" + raw):
        with contextlib.suppress(FormatError):  # and nothing else
            read_pickle(candidate, {PATH}, where="x")


def test_only_instructions_are_left_out_that_picklers_do_not_write() -> None:
    ours = {code.decode("latin1") for code in _STEPS} | {"."}
    names = {op.code: op.name for op in pickletools.opcodes}
    assert ours <= names.keys()
    out = {name for code, name in names.items() if code not in ours}
    old = {"INT", "LONG", "STRING", "UNICODE", "FLOAT", "LIST", "DICT", "GET", "PUT", "PERSID"}
    old |= {"INST", "OBJ", "BINSTRING", "SHORT_BINSTRING", "DUP"}
    rare = {"EXT1", "EXT2", "EXT4", "NEWOBJ_EX", "POP", "POP_MARK", "EMPTY_SET", "ADDITEMS"}
    rare |= {"LONG4", "FROZENSET", "BYTEARRAY8", "NEXT_BUFFER", "READONLY_BUFFER"}
    assert out == old | rare


def test_what_lies_outside_is_named_by_its_key() -> None:
    tree = read_pickle(write_pickle([Stored(("storage", "0"))]), (), where="x")
    assert isinstance(tree[0], Stored)
    assert tree[0].key == ("storage", "0")
    with pytest.raises(TypeError, match="float; wanted what a tree of a pickle is made of"):
        write_pickle(1.0)
