"""A family of models as data: its sizes, its canonical tensors, and its rules for every format."""

from __future__ import annotations

from collections import Counter
from collections.abc import Container, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from xlayout.errors import PortError
from xlayout.port.places import Place
from xlayout.port.rules import Part, Rule, Sizes

__all__ = ["Dialect", "Family"]

_MOST_LAYERS = 10_000  # rules are expanded for each, so a hostile config needs a limit
_MOST_EXPERTS = 1_000_000  # in all layers together, likewise
_MOST = 2**40  # for any other size, so that products of sizes stay manageable


@dataclass(frozen=True, slots=True)
class Dialect:
    """The names and layouts of one family in one format.

    Args:
        format: The file format: "safetensors", "gguf", "maxtext" or "dcp".
        rules: One rule per canonical tensor.
        ignored: Names that add no information, such as tables that code recomputes.
        other: Names of what is not a weight of the model, such as an optimizer's states; `*` is any
            text. They are not ported, and a plan says so.
        config: The keys of the format's own config that stand for this dialect.
        files: Small files that the format's own readers expect beside the tensors, by name.
    """

    format: str
    rules: tuple[Rule, ...]
    ignored: tuple[str, ...] = ()
    other: tuple[str, ...] = ()
    config: Mapping[str, Any] = field(default_factory=dict)
    files: Mapping[str, bytes] = field(default_factory=dict)

    def behind(self, prefix: str, /) -> Dialect:
        """Return the same dialect with a prefix on all names of the model, but not on `other`."""
        rules = tuple(replace(rule, target=prefix + rule.target) for rule in self.rules)
        return replace(self, rules=rules, ignored=tuple(prefix + name for name in self.ignored))

    def places(self, sizes: Sizes, /, absent: Container[str] = ()) -> list[Place]:
        """Return where every canonical tensor of a model lives, except those that are absent."""
        present = [rule for rule in self.rules if rule.name not in absent]
        return [
            Place(rule, layer, expert)
            for layer in (None, *range(sizes.get("layer", 0)))
            for rule in present
            if ("layer" in rule.counted) is (layer is not None)
            for expert in (range(sizes["expert"]) if "expert" in rule.counted else (None,))
        ]


@dataclass(frozen=True, slots=True)
class Family:
    """Models whose checkpoints follow the same rules.

    Args:
        name: Its name for users.
        architectures: The names in a config's `architectures`.
        sizes: Where the config has a pattern's sizes, as `config_key` or as alternatives
            `config_key | other size | a / b`, of which the first that is present counts.
        dialects: The rules per format; "hf" holds the canonical form.
        tied: Canonical tensors that do not exist if `tie_word_embeddings` is true, each with the
            one that is used in its place.
        maxtext: Keys of MaxText's config for all these models. A key that is also in a model's own
            config must have the same value there.
        defaults: The defaults of transformers, for config keys that MaxText needs.

    Raises:
        PortError: Two rules of a dialect share a name, the parts of a tensor do not fill it, or a
            dialect does not cover the same canonical tensors as "hf"; or a rule names a size that
            is not in `sizes`, or `sizes` does not say where it is.
    """

    name: str
    architectures: tuple[str, ...]
    sizes: Mapping[str, str]
    dialects: Mapping[str, Dialect]
    tied: Mapping[str, str] = field(default_factory=dict)
    maxtext: Mapping[str, Any] = field(default_factory=dict)
    defaults: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if "hf" not in self.dialects:
            raise PortError(
                f"{self.name}: dialects are {[*self.dialects]}; wanted 'hf' among them, the "
                "canonical form"
            )
        canonical = {rule.name for rule in self.dialects["hf"].rules}
        for key, dialect in self.dialects.items():
            names = Counter(rule.name for rule in dialect.rules)
            targets = Counter((rule.target, rule.part) for rule in dialect.rules)
            twice = [name for name, n in names.items() if n > 1]
            if twice := twice + [name for (name, _), n in targets.items() if n > 1]:
                raise PortError(f"{self.name}, {key}: {twice} stand in two rules; wanted one")
            for target in dict.fromkeys(rule.target for rule in dialect.rules):
                _refuse_gaps(
                    f"{self.name}, {key}: {target}", [p for t, p in targets if t == target]
                )
            if odd := canonical.symmetric_difference(rule.name for rule in dialect.rules):
                raise PortError(
                    f"{self.name}, {key}: rules for {sorted(odd)} are missing or unknown; wanted "
                    "exactly the tensors of 'hf'"
                )
            named = set[str]().union(*(rule.named_sizes for rule in dialect.rules))
            if unknown := sorted(named.difference(self.sizes)):
                raise PortError(
                    f"{self.name}, {key}: its rules name {unknown}; sizes has {[*self.sizes]}, "
                    "wanted all of them"
                )
        for size, way in _odd_ways(self.sizes):
            raise PortError(
                f"{self.name}: sizes: {size} is {way!r}; wanted a quotient of sizes before it"
            )

    def model_sizes(self, config: Mapping[str, Any], /) -> dict[str, int]:
        """Return the sizes of one model, from its config in Hugging Face's keys.

        Raises:
            PortError: The config lacks a size, or a size is not a positive whole number.
        """
        found: dict[str, int] = {}
        for name, ways in self.sizes.items():
            for way in ways.split(" | "):
                if (value := _look_up(way, config, found)) is not None:
                    break
            else:
                raise PortError(
                    f"config: it has no {ways.split(' | ')[0]}; it gives the {name} size"
                )
            if not isinstance(value, int) or isinstance(value, bool) or value < 1:
                raise PortError(f"config: {way} is {value!r:.80}; wanted a positive whole number")
            if value > (most := _MOST_LAYERS if name == "layer" else _MOST):
                raise PortError(f"config: {way} is {f'{value:,}':.80}; wanted at most {most:,}")
            found[name] = value
        layers, experts = found.get("layer", 1), found.get("expert", 1)
        if layers * experts > _MOST_EXPERTS:
            raise PortError(
                f"config: {layers:,} layers of {experts:,} experts; wanted at most "
                f"{_MOST_EXPERTS:,} in all"
            )
        if (active := found.get("active", 0)) > (most := found.get("expert", active)):
            raise PortError(
                f"config: num_experts_per_tok is {active}; wanted at most {most}, the experts"
            )
        return found

    def absent(self, config: Mapping[str, Any], /) -> Mapping[str, str]:
        """Return the canonical tensors that a model with this config does not have.

        Each is mapped to the one that is used in its place.

        Raises:
            PortError: `tie_word_embeddings` is neither true nor false; or it is true, and `tied`
                names what is no tensor, or one of each layer or expert.
        """
        tied = config.get("tie_word_embeddings")
        if tied is not None and not isinstance(tied, bool):  # "false" would count as true
            raise PortError(f"config: tie_word_embeddings is {tied!r:.80}; wanted true or false")
        if not tied:
            return {}
        once = [rule.name for rule in self.dialects["hf"].rules if not rule.counted]
        if odd := {*self.tied, *self.tied.values()}.difference(once):
            raise PortError(f"{self.name}: tied names {sorted(odd)}; wanted some of {once}")
        return self.tied


def _refuse_gaps(where: str, parts: list[Part | None]) -> None:
    """Refuse a fused tensor whose parts do not fill it."""
    if parts == [None]:
        return
    fused = [part for part in parts if part is not None]
    segments = fused[0].segments
    if {part.index for part in fused} != set(range(len(segments))) or any(
        part is None or part.segments != segments for part in parts
    ):
        raise PortError(f"{where}: its parts are {fused}; wanted each of {segments} once")


def _odd_ways(sizes: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """Yield (size, quotient) for quotients that cannot be computed."""
    before: set[str] = set()
    for name, ways in sizes.items():
        for way in ways.split(" | "):
            over, divided, under = way.partition(" / ")
            numbers = (part for part in (over, under) if part not in before)
            if divided and not all(part.isdecimal() and int(part) for part in numbers):
                yield name, way
        before.add(name)


def _look_up(way: str, config: Mapping[str, Any], found: Mapping[str, int]) -> Any:
    if way.isdecimal():
        return int(way)
    if " / " in way:
        over, under = (found[part] if part in found else int(part) for part in way.split(" / "))
        return over // under if over % under == 0 else over / under
    return found.get(way, config.get(way))
