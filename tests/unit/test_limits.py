"""Files that declare too much data or are nested too deeply raise before they are read."""

from __future__ import annotations

import io
import os
import zipfile
from pathlib import Path

import h5py
import numpy as np
import pytest
import xarray as xr

import learncast as lc
from learncast import study, tasks
from learncast._core import limits, netcdf

EXAMPLES = Path(__file__).parents[2] / "examples"


def refusal(ask, kind=lc.LearncastError):
    """The error of a call: one short line, without advice to load the file unsafely."""
    with pytest.raises(kind) as caught:
        ask()
    text = str(caught.value)
    assert "\n" not in text
    assert len(text) < 2000
    assert "pickle" not in text
    return caught.value


def saved(path: Path) -> Path:
    task = tasks.integration(steps=5)
    network = lc.LinearRNN.aligned(recurrence=0.9, initial=0.01, hidden_size=3, task=task)
    return lc.forecast(task, network, learning_rate=1e-3).solution.at(range(5)).save(path)


@pytest.mark.parametrize("seed", range(20))
def test_a_damaged_file_raises_one_error(seed, tmp_path):
    rng, content = np.random.default_rng(seed), bytearray(saved(tmp_path / "good.nc").read_bytes())
    for place in rng.integers(len(content), size=20):
        content[place] ^= int(rng.integers(1, 256))
    (tmp_path / "flipped.nc").write_bytes(content)
    assert "flipped.nc" in str(refusal(lambda: lc.Trajectory.load(tmp_path / "flipped.nc"), lc.SchemaMismatch))


@pytest.mark.slow_cases("number of references")
@pytest.mark.parametrize(
    ("name", "offset"),
    [("coordinates", 16 + 24 + 8 + 3), ("DIMENSION_LIST", 16 + 12 + 3), ("DIMENSION_LIST", 16 + 16 + 24 + 3)],
    ids=["strings", "size of a reference", "number of references"],
)
def test_a_wrong_length_in_an_attribute_raises(name, offset, tmp_path):
    """HDF5 allocates the length that an attribute declares, in bytes at a known offset from its name."""
    dataset = xr.Dataset({"y": (("t",), np.arange(3.0))}, coords={"t": np.arange(3), "s": ("t", [1.0, 2, 3])})
    netcdf.write(dataset, tmp_path / "good.nc")
    assert netcdf.read(tmp_path / "good.nc").identical(dataset)
    content = bytearray((tmp_path / "good.nc").read_bytes())
    content[content.index(name.encode() + b"\0") + offset] ^= 0x40
    (tmp_path / "bad.nc").write_bytes(content)
    with pytest.raises(lc.SchemaMismatch):
        netcdf.read(tmp_path / "bad.nc")


def sparse(file):
    file.create_dataset("x", (10**6, 10**6), "f8", chunks=(1000, 1000))


def elsewhere(file):
    file["x"] = h5py.ExternalLink("/etc/passwd", "/x")


def outside(file):
    file.create_dataset("x", (100,), "u1", external=[("/etc/passwd", 0, 100)])


def joined(file):
    layout = h5py.VirtualLayout((10,), "f8")
    layout[:] = h5py.VirtualSource("other.nc", "x", (10,))
    file.create_virtual_dataset("x", layout)


def itself(file):
    file["x"] = h5py.SoftLink("/x")


def long_strings(file):
    strings = file.create_dataset("x", (10_000,), h5py.string_dtype())
    strings[0] = "a" * 10**6


@pytest.mark.parametrize(
    ("lie", "token"),
    [
        (sparse, "7.28 TiB"),
        (elsewhere, "'x'"),
        (outside, "'x'"),
        (joined, "'x'"),
        (itself, "'x'"),
        (long_strings, "most_bytes"),
    ],
)
def test_declared_sizes_and_links_are_checked_before_a_netcdf_file_is_read(lie, token, tmp_path):
    with h5py.File(tmp_path / "lie.nc", "w") as file:
        lie(file)
    error = refusal(lambda: lc.Trajectory.load(tmp_path / "lie.nc"))
    assert token in str(error)
    assert error.field == (None if token == "'x'" else "most_bytes")


def test_the_memory_limit_can_be_lowered_and_raised(tmp_path):
    path = saved(tmp_path / "good.nc")
    assert refusal(lambda: lc.Trajectory.load(path, most_bytes=100), lc.InvalidSpec).field == "most_bytes"
    with limits.allowing(100):
        assert refusal(lambda: netcdf.read(path)).field == "most_bytes"
        assert lc.Trajectory.load(path, most_bytes=10**6).dataset.sizes["time"] == 5
    assert refusal(lambda: limits.allowing(float("nan")).__enter__()).field == "most_bytes"


def header(shape: tuple[int, ...], descr: str = "<f8") -> bytes:
    file = io.BytesIO()
    np.lib.format.write_array_header_1_0(file, {"descr": descr, "fortran_order": False, "shape": shape})
    return file.getvalue()


def test_an_archive_that_declares_or_holds_too_much_raises(tmp_path):
    path = tmp_path / "lie.npz"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("inputs.npy", header((10**12,)))
        archive.writestr("targets.npy", header((10**12,)))
    assert "1000000000000" in str(refusal(lambda: tasks.from_file(path)))
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive, archive.open("inputs.npy", "w") as file:
        file.write(header((50, 10**6)))
        for _ in range(50):
            file.write(bytes(8 * 10**6))
    assert path.stat().st_size < 10**6
    with limits.allowing(10**8):
        error = refusal(lambda: tasks.from_file(path, targets="inputs"))
        assert error.field == "most_bytes"
        assert "0.373 GiB" in str(error)
    np.savez(path, inputs=np.array([{}], dtype=object), targets=np.zeros(3))
    refusal(lambda: tasks.from_file(path))
    for content in (b"no array at all", header((3,), "|O")):
        (tmp_path / "lie.npy").write_bytes(content)
        refusal(lambda: tasks.from_file(tmp_path / "lie.npy", targets="lie.npy"))


@pytest.mark.parametrize(
    ("text", "token"),
    [
        ("a = " + "1" * 5000, "400 digits (about line 1)"),
        ("\na = 0x" + "f" * 5000, "400 digits (about line 2)"),
        ("a = " + "1" * 30, "64 bits"),
        ("a = " + "[" * 5000 + "]" * 5000, "16 nested brackets"),
        ("a = " + "{a=" * 3000 + "1" + "}" * 3000, "16 nested brackets"),
        ("[" + ".".join("a" * 3000) + "]", "16 parts"),
        (".".join("a" * 20_000) + " = 1", "16 parts"),
        (" . ".join(["'a'", '"b"'] * 10_000) + " = 1", "16 parts"),
        ("#" * 2**21, "2 MiB"),
        ('a = "' + '\\"' * 300_000, "Unterminated string"),
        ("a = '''" + "'" * 3 + "[" * 100, "16 nested brackets"),
    ],
)
def test_a_study_that_would_exhaust_its_parser_raises(text, token, tmp_path):
    (tmp_path / "study.toml").write_text(text)
    assert token in str(refusal(lambda: study.Study.load(tmp_path / "study.toml"), lc.InvalidSpec))


def test_strings_and_comments_do_not_count_as_nested(tmp_path):
    deep = "[" * 50 + ".".join("a" * 50)
    path = tmp_path / "study.toml"
    path.write_text(f'# {deep}\na = \'{deep}\'\nb = "\\"{deep}"\nc = \'\'\'\n\'{deep}\'\'\'\nd = """\n"{deep}\\""""\n')
    assert limits.tables_of(path, "the file").keys() == {"a", "b", "c", "d"}
    path.write_text("a = [" + "1.5, " * 300_000 + "]")
    assert len(limits.tables_of(path, "the file", most_bytes=10**7)["a"]) == 300_000


HEADER = "trial,step,input,target\n"
ROWS = "".join(f"{trial},{step},0.5,{trial}.5\n" for trial in range(3) for step in range(2))


@pytest.mark.parametrize(
    ("text", "token"),
    [
        (",".join(f"input{k}" for k in range(20_000)) + "\n", "20,000 columns"),
        (HEADER + ROWS + "9,0," + "9" * 10**6 + ",1\n9,1,1,1\n", "'99999"),
        (HEADER + ROWS + "9,0,nan,1\n9,1,1,1\n", "trial '9'"),
        (HEADER + ROWS + "9,0,inf,1\n9,1,1,1\n", "'inf'"),
        (HEADER + ROWS + "a" * 10**6 + ",1,1,1\n", "'aaa"),
        (",".join("abcdefgh" * 500) + "\n", "a, b, c, d, e, f, g, h"),
    ],
    ids=["columns", "long number", "nan", "infinite", "long name", "no known column"],
)
def test_a_bad_table_raises_a_short_message(text, token, tmp_path):
    (tmp_path / "trials.csv").write_text(text)
    assert token in str(refusal(lambda: tasks.from_table(tmp_path / "trials.csv")))


def test_a_parquet_table_larger_than_the_limit_raises(tmp_path):
    pandas, _ = pytest.importorskip("pandas"), pytest.importorskip("pyarrow")
    frame = pandas.DataFrame({"trial": np.zeros(10**6, dtype=int), "step": 1, "input": 0.0, "target": 0.0})
    frame.to_parquet(tmp_path / "long.parquet")
    error = refusal(lambda: tasks.from_table(tmp_path / "long.parquet", most_bytes=10**7))
    assert error.field == "most_bytes"
    assert "1,000,000 rows" in str(error)


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="this system has no named pipes")
@pytest.mark.parametrize("suffix", ["csv", "npz", "toml", "nc"])
def test_pipes_devices_and_folders_are_not_opened(suffix, tmp_path):
    pipe, zero = tmp_path / f"pipe.{suffix}", tmp_path / f"zero.{suffix}"
    os.mkfifo(pipe)
    zero.symlink_to("/dev/zero")
    load = {"toml": study.Study.load, "nc": lc.Trajectory.load}.get(suffix, tasks.from_file)
    for path in (pipe, zero, tmp_path):
        refusal(lambda path=path: load(path))


def test_a_model_too_large_for_the_memory_limit_raises_before_it_is_made(tmp_path):
    path = tmp_path / "study.toml"
    path.write_text('[model]\nkind = "diag-gate"\nhidden_size = 4096\n[task]\ninputs = 2\n')
    window = study.WindowStudy.load(path)
    error = refusal(window.settings, lc.InvalidSpec)
    assert error.field == "most_bytes"
    assert "1 GiB" in str(error)
    with limits.allowing(2e9):
        assert window.settings()["model"]["hidden_size"] == 4096


def test_a_network_too_large_for_the_memory_limit_raises_before_it_is_made(tmp_path):
    text = (EXAMPLES / "two_integration_tasks.toml").read_text(encoding="utf-8")
    path = tmp_path / "wide.toml"
    path.write_text(text.replace("hidden_size = 128", "hidden_size = 4096"), encoding="utf-8")
    error = refusal(lambda: study.Study.load(path), lc.InvalidSpec)
    assert error.field == "most_bytes"
    assert "0.62" in str(error)
    with limits.allowing(1e9):
        assert study.Study.load(path).network.hidden_size == 4096
