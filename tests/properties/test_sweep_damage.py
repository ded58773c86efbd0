"""However result files are damaged, a sweep finds it, sets them apart and computes the same bytes again."""

from __future__ import annotations

import random
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from learncast import sweep
from learncast._core.errors import LearncastError
from learncast.sweep.store import Store


def squared(spec):
    return {"square": spec["number"] ** 2, "noise": spec.rng().normal(), "kind": "square"}


def computed(store: Path, number: int) -> sweep.Summary:
    return sweep.run(squared, {"number": list(range(number))}, store=store, executor="in-process")


def results(store: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in (store / "results").rglob("*.nc")}


@pytest.fixture(scope="module")
def shared(tmp_path_factory):
    """A finished store of twelve results, to be damaged and mended again and again."""
    store = tmp_path_factory.mktemp("damage") / "store"
    computed(store, 12)
    return store, results(store)


def damaged(content: bytes, kind: str, where: int) -> bytes | None:
    place = where % len(content)
    if kind == "flipped":
        return content[:place] + bytes([content[place] ^ (1 << (where % 8))]) + content[place + 1 :]
    return {"truncated": content[:place], "emptied": b"", "gone": None}[kind]


def inflict(store: Path, whole: dict[str, bytes], damage: dict[str, tuple[str, int]]) -> dict[str, bytes]:
    """Damage files; returns what is left of them."""
    left = {}
    for name, (kind, where) in damage.items():
        path, content = Store(store).path(name.removesuffix(".nc")), damaged(whole[name], kind, where)
        if content is None:
            path.unlink()
        else:
            path.write_bytes(content)
            left[name] = content
    return left


def mend(store: Path, whole: dict[str, bytes], damage: dict[str, tuple[str, int]]) -> None:
    left = inflict(store, whole, damage)
    found = sweep.verify(store)
    assert sorted(f"{one.digest}.nc" for one in found) == sorted(damage)
    assert sweep.verify(store) == []
    assert sweep.status(store).missing == len(damage)
    # Set apart as they were found, for whoever wants to know why.
    assert {path.name: path.read_bytes() for path in (store / "quarantine").glob("*")} == left
    made = computed(store, len(whole))
    assert made.computed == len(damage)
    assert results(store) == whole
    assert {path.name for path in sweep.prune(store)} == set(left)


KINDS = ("truncated", "emptied", "flipped", "gone")
DAMAGE = st.dictionaries(
    st.integers(0, 11), st.tuples(st.sampled_from(KINDS), st.integers(0, 10**6)), min_size=1, max_size=5
)


@settings(max_examples=12 * settings().max_examples // 300, deadline=None)
@given(damage=DAMAGE)
def test_damage_is_found_set_apart_and_mended(shared, damage):
    store, whole = shared
    names = sorted(whole)
    mend(store, whole, {names[k]: one for k, one in damage.items()})


def all_damaged(folder: Path, number: int, seed: int) -> None:
    computed(folder / "store", number)
    whole, rng = results(folder / "store"), random.Random(seed)
    assert len(whole) == number
    kinds = [KINDS[k % 3] for k in range(number)]
    mend(folder / "store", whole, {name: (kinds.pop(), rng.randrange(10**9)) for name in sorted(whole)})


def test_sixty_damaged_files(tmp_path):
    all_damaged(tmp_path, 60, seed=1)


@pytest.mark.slow
def test_a_thousand_damaged_files(tmp_path):
    all_damaged(tmp_path, 1000, seed=2)


def test_no_flipped_bit_is_ever_gathered(shared):
    """Files are opened only if their hash matches: a flip among the numbers would still be good NetCDF."""
    store, whole = shared
    name = min(whole)
    noise = np.float64(next(row for row in sweep.gather(store)["noise"].values if _holds(whole[name], row)))
    place = whole[name].index(noise.tobytes())
    for offset in (0, 3, 7):
        content = bytearray(whole[name])
        content[place + offset] ^= 1
        Store(store).path(name.removesuffix(".nc")).write_bytes(bytes(content))
        with pytest.raises(LearncastError, match="learncast sweep verify"):
            sweep.gather(store)
    assert [one.what for one in sweep.verify(store)] == ["has other content than was written"]
    assert computed(store, 12).computed == 1
    sweep.prune(store)


def _holds(content: bytes, number: float) -> bool:
    return np.float64(number).tobytes() in content
