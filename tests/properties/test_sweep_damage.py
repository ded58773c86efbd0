"""Damaged result files are found, moved to quarantine and computed again with equal bytes."""

from __future__ import annotations

import random
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from learncast import LearncastError, sweep


def squared(spec):
    return {"square": spec["number"] ** 2, "noise": spec.rng().normal(), "kind": "square"}


def computed(store: Path, number: int) -> sweep.Summary:
    return sweep.run(squared, {"number": list(range(number))}, store=store, executor="in-process")


def results(store: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in (store / "results").rglob("*.nc")}


@pytest.fixture(scope="module")
def shared(tmp_path_factory):
    """A finished store of twelve results, which every example damages and repairs."""
    store = tmp_path_factory.mktemp("damage") / "store"
    computed(store, 12)
    return store, results(store)


def damaged(content: bytes, kind: str, where: int) -> bytes | None:
    place = where % len(content)
    if kind == "flipped":
        return content[:place] + bytes([content[place] ^ (1 << (where % 8))]) + content[place + 1 :]
    return {"truncated": content[:place], "emptied": b"", "gone": None}[kind]


def inflict(store: Path, files: dict[str, bytes], damage: dict[str, tuple[str, int]]) -> dict[str, bytes]:
    """Damage files; return those that are left."""
    left = {}
    for name, (kind, where) in damage.items():
        path, content = store / "results" / name[:2] / name, damaged(files[name], kind, where)
        if content is None:
            path.unlink()
        else:
            path.write_bytes(content)
            left[name] = content
    return left


def repair(store: Path, files: dict[str, bytes], damage: dict[str, tuple[str, int]]) -> None:
    left = inflict(store, files, damage)
    reported = sweep.verify(store)
    assert sorted(f"{one.digest}.nc" for one in reported) == sorted(damage)
    assert sweep.verify(store) == []
    assert sweep.status(store).missing == len(damage)
    # They are in quarantine as they were.
    assert {path.name: path.read_bytes() for path in (store / "quarantine").glob("*")} == left
    made = computed(store, len(files))
    assert made.computed == len(damage)
    assert results(store) == files
    assert {path.name for path in sweep.prune(store)} == set(left)


KINDS = ("truncated", "emptied", "flipped", "gone")
DAMAGE = st.dictionaries(
    st.integers(0, 11), st.tuples(st.sampled_from(KINDS), st.integers(0, 10**6)), min_size=1, max_size=5
)


@settings(max_examples=12 * settings().max_examples // 300, deadline=None)
@given(damage=DAMAGE)
def test_damaged_files_are_found_and_computed_again(shared, damage):
    store, files = shared
    names = sorted(files)
    repair(store, files, {names[k]: one for k, one in damage.items()})


def all_damaged(folder: Path, number: int, seed: int) -> None:
    computed(folder / "store", number)
    files, rng = results(folder / "store"), random.Random(seed)
    assert len(files) == number
    kinds = [KINDS[k % 3] for k in range(number)]
    repair(folder / "store", files, {name: (kinds.pop(), rng.randrange(10**9)) for name in sorted(files)})


def test_sixty_damaged_files(tmp_path):
    all_damaged(tmp_path, 60, seed=1)


@pytest.mark.slow
def test_a_thousand_damaged_files(tmp_path):
    all_damaged(tmp_path, 1000, seed=2)


def test_a_file_with_a_flipped_bit_is_not_gathered(shared):
    """A flipped bit in a number leaves a valid NetCDF file, so only the hash can show it."""
    store, files = shared
    name = min(files)
    noise = np.float64(next(row for row in sweep.gather(store)["noise"].values if _holds(files[name], row)))
    place = files[name].index(noise.tobytes())
    for offset in (0, 3, 7):
        content = bytearray(files[name])
        content[place + offset] ^= 1
        (store / "results" / name[:2] / name).write_bytes(bytes(content))
        with pytest.raises(LearncastError) as error:
            sweep.gather(store)
        assert error.value.field == "store"
    assert len(sweep.verify(store)) == 1
    assert computed(store, 12).computed == 1
    sweep.prune(store)


def _holds(content: bytes, number: float) -> bool:
    return np.float64(number).tobytes() in content
