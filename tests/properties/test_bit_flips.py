"""One flipped bit in a file: the answer is unchanged, or one error is raised, and the process survives."""

from __future__ import annotations

import h5py
import numpy as np
import pytest
import xarray as xr
from tests.properties import bit_flips
from tests.properties.bit_flips import squared

import learncast as lc
from learncast import sweep


@pytest.mark.slow
@pytest.mark.parametrize("name", bit_flips.CASES)
def test_many_flips_raise_nothing_else_and_change_no_sealed_number(name):
    """`python -m tests.properties.bit_flips --flips 2000` tries more, and counts the outcomes."""
    _, problems, _ = bit_flips.run(name, 300)
    assert problems == []


@pytest.mark.parametrize("name", bit_flips.CASES)
def test_a_few_flips_in_files_that_are_read_as_users_do(name):
    counts, problems, _ = bit_flips.run(name, 4, apart=True)
    assert problems == []
    assert counts.total() == 4


def test_a_ledger_is_written_again_from_undamaged_results_only(tmp_path):
    sweep.run(squared, {"x": [1, 2, 3]}, store=tmp_path, executor="in-process")
    before = sweep.gather(tmp_path)
    (tmp_path / "ledger.sqlite").unlink()
    with h5py.File(sorted(tmp_path.glob("results/*/*.nc"))[0], "a") as file:
        file["square"][...] = -file["square"][()]
    status = sweep.rebuild(tmp_path)
    assert (status.done, status.missing) == (2, 1)
    sweep.resume(tmp_path, squared, executor="in-process")
    xr.testing.assert_identical(sweep.gather(tmp_path), before)


@pytest.mark.parametrize(
    "change",
    [
        "UPDATE tasks SET position = 7 WHERE position = 1",
        "UPDATE tasks SET status = 0 WHERE position = 1",
        "UPDATE meta SET value = replace(value, 'base', 'case') WHERE key = 'study'",
    ],
)
def test_a_ledger_with_another_task_status_or_study_fails_its_check(change, tmp_path):
    import sqlite3

    sweep.run(squared, {"x": [1, 2]}, store=tmp_path, executor="in-process")
    with sqlite3.connect(tmp_path / "ledger.sqlite") as connection:
        connection.execute(change)
    connection.close()
    for ask in (sweep.verify, sweep.gather, lambda store: sweep.resume(store, squared, executor="in-process")):
        with pytest.raises(lc.SchemaMismatch) as error:
            ask(tmp_path)
        assert error.value.field == "store"
    assert sweep.rebuild(tmp_path).done == 2
    assert (tmp_path / "ledger.sqlite.old-1").is_file()


def test_the_status_of_a_changed_study_is_refused(tmp_path):
    import sqlite3

    sweep.run(squared, {"x": [1, 2]}, store=tmp_path, executor="in-process")
    with sqlite3.connect(tmp_path / "ledger.sqlite") as connection:
        connection.execute("UPDATE meta SET value = replace(value, 'function', 'gunction') WHERE key = 'study'")
    connection.close()
    with pytest.raises(lc.SchemaMismatch):
        sweep.status(tmp_path)


def test_damaged_bytes_in_a_message_of_sqlite_are_no_other_error(tmp_path):
    sweep.run(squared, {"x": [1, 2]}, store=tmp_path, executor="in-process")
    ledger = tmp_path / "ledger.sqlite"
    ledger.write_bytes(ledger.read_bytes().replace(b"NOT NULL UNIQUE", b"NOT NULL UNIQU\xc5"))
    for ask in (sweep.status, sweep.verify, sweep.gather):
        with pytest.raises(lc.SchemaMismatch):
            ask(tmp_path)


def test_removing_the_lock_file_admits_no_second_driver(tmp_path):
    from learncast.sweep import store

    sweep.run(squared, {"x": [1]}, store=tmp_path, executor="in-process")
    with store.Store(tmp_path).locked():
        (tmp_path / "lock").unlink()
        with pytest.raises(lc.InvalidSpec) as error:
            sweep.run(squared, {"x": [1]}, store=tmp_path, executor="in-process")
        assert error.value.field == "store"


def test_stored_weights_with_another_number_do_not_have_their_checksum(tmp_path):
    path = bit_flips.make_weights(tmp_path)
    assert bit_flips.read_weights(path)[0][1, 2] == 5.0
    path.write_bytes(path.read_bytes().replace(np.float32(5.0).tobytes(), np.float32(7.0).tobytes()))
    with pytest.raises(lc.InvalidSpec) as error:
        bit_flips.read_weights(path)
    assert error.value.field == "weights"
