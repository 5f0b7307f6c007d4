"""Patterns: einops' meaning where einops can say it, numpy's concatenate and split elsewhere."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.counted import counted
from xlayout.algebra import Layout
from xlayout.errors import LayoutError, PatternError

einops = pytest.importorskip("einops")

LETTERS = ("a", "b", "c", "d", "e")


@dataclass(frozen=True, slots=True)
class Case:
    """A pattern, its input's shape, the sizes that the shape does not determine, and all sizes."""

    pattern: str
    shape: tuple[int, ...]
    sizes: dict[str, int]
    every: dict[str, int]


@st.composite
def grouped(draw: st.DrawFn, names: list[str]) -> list[list[str]]:
    """The names in order, some of them merged into one axis, with axes of size 1 between."""
    axes: list[list[str]] = []
    for name in names:
        if axes and draw(st.booleans()):
            axes[-1].append(name)
        else:
            axes.append([name])
    if draw(st.integers(0, 3)) == 0:
        axes.insert(draw(st.integers(0, len(axes))), [])
    return axes


def written(axes: list[list[str]]) -> str:
    """Axes as einops writes them."""
    return " ".join(
        "1" if not axis else axis[0] if len(axis) == 1 else f"({' '.join(axis)})" for axis in axes
    )


@st.composite
def einops_patterns(draw: st.DrawFn, dots: bool = True) -> Case:
    names = list(LETTERS[: draw(st.integers(1, 5))])
    size = {name: draw(st.integers(1, 4)) for name in names}
    left, right = draw(grouped(names)), draw(grouped(draw(st.permutations(names))))
    shape = [math.prod(size[n] for n in axis) for axis in left]
    sizes = {}
    for axis in left:
        known = axis[:] if draw(st.booleans()) else axis[1:]
        sizes |= {n: size[n] for n in known if len(axis) > 1}
    before, after = written(left), written(right)
    if dots and draw(st.booleans()):
        extra = draw(st.lists(st.integers(1, 3), max_size=2))
        at, to = draw(st.integers(0, len(left))), draw(st.integers(0, len(right)))
        shape[at:at] = extra
        before = " ".join([written(left[:at]), "...", written(left[at:])])
        merged = "(...)" if draw(st.booleans()) else "..."
        after = " ".join([written(right[:to]), merged, written(right[to:])])
    return Case(f"{before} -> {after}", tuple(shape), sizes, size)


def run(layout: Layout, *arrays: np.ndarray) -> list[np.ndarray]:
    """The outputs, by the table."""
    flat = np.concatenate([a.ravel() for a in arrays])[layout.index()]
    ends = np.cumsum([math.prod(s) for s in layout.out_shapes])[:-1]
    parts = np.split(flat, ends)
    return [p.reshape(s) for p, s in zip(parts, layout.out_shapes, strict=True)]


def numbered(*shapes: tuple[int, ...]) -> list[np.ndarray]:
    """Arrays whose elements all differ."""
    ends = np.cumsum([math.prod(s) for s in shapes])
    return [np.arange(n - math.prod(s), n).reshape(s) for s, n in zip(shapes, ends, strict=True)]


@given(einops_patterns())
def test_a_pattern_means_what_it_means_in_einops(case: Case) -> None:
    (x,) = numbered(case.shape)
    (made,) = run(Layout.parse(case.pattern, case.shape, **case.sizes), x)
    wanted = einops.rearrange(x, case.pattern, **case.sizes)
    assert made.shape == wanted.shape
    assert made.tolist() == wanted.tolist()


@given(einops_patterns())
def test_sizes_may_stand_in_the_pattern(case: Case) -> None:
    text = case.pattern
    for name, n in case.sizes.items():
        text = text.replace(name, f"{name}={n}", 1)
    assert Layout.parse(text, case.shape) == Layout.parse(case.pattern, case.shape, **case.sizes)


@given(einops_patterns(dots=False))
def test_the_reversed_pattern_is_the_inverse(case: Case) -> None:
    left, right = case.pattern.split(" -> ")
    forth = Layout.parse(case.pattern, case.shape, **case.sizes)
    assert Layout.parse(f"{right} -> {left}", None, **case.every) == forth.inverse()


@pytest.mark.parametrize(
    ("pattern", "shape", "sizes"),
    [
        ("a b -> b a", (2, 3), {}),
        ("a () b -> (b a) ()", (2, 1, 3), {}),
        ("(a b) 1 c -> c 1 (b a)", (6, 1, 2), {"a": 2}),
        ("b ... h -> (b h) (...)", (2, 3, 4, 5), {}),
        ("... -> (...)", (), {}),
        ("1 ->", (1,), {}),
        (" -> 1 1", (), {}),
        ("a 1 -> a", (0, 1), {}),
        ("(a b) c -> c a b", (0, 3), {"b": 2}),
        ("batch head_1 _ -> _ (head_1 batch)", (2, 3, 4), {}),
    ],
)
def test_a_pattern_of_the_einops_kind(
    pattern: str, shape: tuple[int, ...], sizes: dict[str, int]
) -> None:
    if "_ " in pattern:  # einops refuses a name that begins with an underscore
        wanted = np.transpose(numbered(shape)[0], (2, 1, 0)).reshape(4, 6)
    else:
        wanted = einops.rearrange(numbered(shape)[0], pattern, **sizes)
    (made,) = run(Layout.parse(pattern, shape, **sizes), *numbered(shape))
    assert made.shape == wanted.shape
    assert made.tolist() == wanted.tolist()


# -- segments --------------------------------------------------------------------------------------

parts = st.lists(st.integers(0, 4), min_size=1, max_size=4)


def summed(widths: list[int], order: list[int] | None = None, wrap: str = "s{}") -> str:
    """`(s0 + s1 + ...)`, in any order."""
    return " + ".join(wrap.format(k) for k in (order or range(len(widths))))


def named(widths: list[int], name: str = "s{}") -> dict[str, int]:
    return {name.format(k): n for k, n in enumerate(widths)}


@given(parts, st.integers(1, 3), st.integers(1, 3))
def test_segments_apart_are_numpys_split(widths: list[int], before: int, after: int) -> None:
    right = ", ".join(f"b s{k} c" for k in range(len(widths)))
    (x,) = numbered((before, sum(widths), after))
    made = run(Layout.parse(f"b ({summed(widths)}) c -> {right}", x.shape, **named(widths)), x)
    wanted = np.split(x, np.cumsum(widths)[:-1], axis=1)
    assert [m.tolist() for m in made] == [w.tolist() for w in wanted]


@given(parts, st.integers(1, 3), st.data())
def test_segments_together_are_numpys_concatenate(
    widths: list[int], rows: int, data: st.DataObject
) -> None:
    order = data.draw(st.permutations(range(len(widths))))
    left = ", ".join(f"b s{k}" for k in range(len(widths)))
    xs = numbered(*((rows, n) for n in widths))
    layout = Layout.parse(f"{left} -> b ({summed(widths, order)})", [x.shape for x in xs])
    (made,) = run(layout, *xs)
    assert made.tolist() == np.concatenate([xs[k] for k in order], axis=1).tolist()


@given(parts, st.integers(1, 4), st.integers(1, 3))
def test_segments_woven_group_by_group(widths: list[int], groups: int, after: int) -> None:
    left = summed(widths, wrap="(g s{})")
    x = numbered((groups * sum(widths), after))[0]
    layout = Layout.parse(
        f"({left}) c -> (g ({summed(widths)})) c", x.shape, g=groups, **named(widths)
    )
    split = np.split(x, np.cumsum([groups * n for n in widths])[:-1])
    rows = [s.reshape(groups, n, after) for s, n in zip(split, widths, strict=True)]
    (made,) = run(layout, x)
    assert made.tolist() == np.concatenate(rows, axis=1).reshape(x.shape).tolist()


@given(parts, parts)
def test_two_sums_are_a_grid_of_blocks(heights: list[int], widths: list[int]) -> None:
    blocks = [(i, j) for i in range(len(heights)) for j in range(len(widths))]
    right = ", ".join(f"r{i} c{j}" for i, j in blocks)
    (x,) = numbered((sum(heights), sum(widths)))
    layout = Layout.parse(
        f"({summed(heights, wrap='r{}')}) ({summed(widths, wrap='c{}')}) -> {right}",
        x.shape,
        **named(heights, "r{}"),
        **named(widths, "c{}"),
    )
    rows = np.split(x, np.cumsum(heights)[:-1], axis=0)
    wanted = [b.tolist() for r in rows for b in np.split(r, np.cumsum(widths)[:-1], axis=1)]
    assert [m.tolist() for m in run(layout, x)] == wanted


@given(parts, st.data())
def test_one_size_of_a_sum_may_be_left_open(widths: list[int], data: st.DataObject) -> None:
    sizes = named(widths)
    text = f"({summed(widths)}) -> {', '.join(sizes)}"
    left_open = data.draw(st.sampled_from(sorted(sizes)))
    less = {name: n for name, n in sizes.items() if name != left_open}
    assert Layout.parse(text, (sum(widths),), **less) == Layout.parse(text, None, **sizes)


def test_sums_nest() -> None:
    layout = Layout.parse("(g (q r + (k + v))) -> (g q r), (g k), (g v)", None,
                          g=2, q=2, r=2, k=1, v=2)  # fmt: skip
    x = np.arange(14).reshape(2, 7)
    q, k, v = run(layout, x)
    assert [*q, *k, *v] == [*x[:, :4].ravel(), *x[:, 4:5].ravel(), *x[:, 5:].ravel()]


# -- what is refused -------------------------------------------------------------------------------

tokens = st.sampled_from(["a", "b", "c", "1", "2", "...", "(", ")", "+", ",", "->", "=", "=2", " "])


@given(
    st.lists(tokens, max_size=12).map(" ".join),
    st.lists(st.integers(0, 4), max_size=3),
    st.booleans(),
)
def test_any_text_is_read_or_refused_with_a_reason(text: str, shape: list[int], bare: bool) -> None:
    try:
        layout = Layout.parse(text, None if bare else tuple(shape))
    except PatternError as error:
        lines = str(error).split("\n")
        assert lines[0].startswith("pattern: ")
        if len(lines) > 1:
            assert lines[1:2] == [f"  {text}"]
            assert lines[2].strip() == "^"
            assert len(lines[2]) - 3 <= len(text)
    except LayoutError as error:
        pytest.fail(f"{type(error).__name__}: {error}")
    else:
        assert layout.is_bijection


MANY = [f"a{k}" for k in range(20_000)]


@pytest.mark.parametrize(
    ("left", "shape", "sizes"),
    [
        (" ".join(MANY), (1,) * len(MANY), ()),
        (f"({' '.join(MANY)})", (1,), MANY[1:]),
    ],
    ids=["axes", "a group"],
)
def test_a_pattern_may_have_twenty_thousand_names(
    left: str, shape: tuple[int, ...], sizes: tuple[str, ...]
) -> None:
    """It takes a fifth of a second; it took eleven when each name copied all those before it."""
    layout = Layout.parse(f"{left} -> {' '.join(MANY)}", shape, **dict.fromkeys(sizes, 1))
    assert layout.out_shape == (1,) * len(MANY)


def test_a_group_of_thousands_of_names_is_not_compared_with_itself() -> None:
    some = " ".join(MANY[:1000])
    open_sizes = r"the shapes leave a0, a1, .* open; give sizes"
    with counted() as seen, pytest.raises(PatternError, match=open_sizes):
        Layout.parse(f"({some}) -> {some}", (1,))
    assert seen["call"] < 100_000
