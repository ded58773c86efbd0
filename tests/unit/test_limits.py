"""Files that claim to be larger or deeper than they should are refused before they are read."""

from __future__ import annotations

import io
import os
import zipfile
from pathlib import Path

import h5py
import numpy as np
import pytest
import xarray as xr

from learncast import LearncastError, LinearRNN, solve, tasks
from learncast._core.errors import InvalidSpec, SchemaMismatch
from learncast._core.limits import allowing, tables_of
from learncast._core.netcdf import read, write
from learncast.results import Trajectory
from learncast.study import Study, WindowStudy
from learncast.tasks import from_file

EXAMPLES = Path(__file__).parents[2] / "examples"


def refused(ask, kind=LearncastError) -> str:
    with pytest.raises(kind) as caught:
        ask()
    words = str(caught.value)
    assert "\n" not in words
    assert len(words) < 2000
    assert "pickle" not in words
    return words


def saved(path: Path) -> Path:
    task = tasks.integration(steps=5)
    network = LinearRNN.aligned(recurrence=0.9, initial=0.01, hidden_size=3, task=task)
    return solve(task, network, learning_rate=1e-3).at(range(5)).save(path)


@pytest.mark.parametrize("seed", range(20))
def test_a_file_with_a_flipped_byte_is_read_or_refused_in_one_sentence(seed, tmp_path):
    rng, content = np.random.default_rng(seed), bytearray(saved(tmp_path / "good.nc").read_bytes())
    for place in rng.integers(len(content), size=20):
        content[place] ^= int(rng.integers(1, 256))
    (tmp_path / "flipped.nc").write_bytes(content)
    assert "flipped.nc must be a NetCDF file" in refused(
        lambda: Trajectory.load(tmp_path / "flipped.nc"), SchemaMismatch
    )


@pytest.mark.parametrize(
    ("name", "offset"),
    [("coordinates", 16 + 24 + 8 + 3), ("DIMENSION_LIST", 16 + 12 + 3), ("DIMENSION_LIST", 16 + 16 + 24 + 3)],
    ids=["words", "size of a reference", "number of references"],
)
def test_items_of_any_length_are_compared_with_what_is_there(name, offset, tmp_path):
    """HDF5 takes memory for what an attribute says: the bytes that say so, at their places behind its name."""
    dataset = xr.Dataset({"y": (("t",), np.arange(3.0))}, coords={"t": np.arange(3), "s": ("t", [1.0, 2, 3])})
    write(dataset, tmp_path / "good.nc")
    assert read(tmp_path / "good.nc").identical(dataset)
    content = bytearray((tmp_path / "good.nc").read_bytes())
    content[content.index(name.encode() + b"\0") + offset] ^= 0x40
    (tmp_path / "bad.nc").write_bytes(content)
    with pytest.raises(OSError, match=f"the attribute '{name}', which leads 1 times to what is not there"):
        read(tmp_path / "bad.nc")


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


def long_words(file):
    words = file.create_dataset("x", (10_000,), h5py.string_dtype())
    words[0] = "a" * 10**6


def attribute(file):
    file.attrs.create("words", ["a"] * 4000, dtype=h5py.string_dtype())
    file.create_dataset("x", data=np.zeros(10**6))


@pytest.mark.parametrize(
    ("lie", "words"),
    [
        (sparse, "the variables together must take at most 2 GiB, but got 7.28 TiB"),
        (elsewhere, "must hold all its arrays itself, but got 'x'"),
        (outside, "must hold all its arrays itself, but got 'x'"),
        (joined, "must hold all its arrays itself, but got 'x'"),
        (itself, "must hold all its arrays itself, but got 'x'"),
        (long_words, "the words of 'x' must take at most 2 GiB, but got 37.3 GiB"),
        (attribute, "the attribute 'words' must take at most 2 GiB"),
    ],
)
def test_what_a_netcdf_file_declares_is_measured_before_it_is_read(lie, words, tmp_path):
    with h5py.File(tmp_path / "lie.nc", "w") as file:
        lie(file)
    assert words in refused(lambda: Trajectory.load(tmp_path / "lie.nc"))


def test_a_result_may_be_allowed_less_or_more(tmp_path):
    path = saved(tmp_path / "good.nc")
    assert "raise most_bytes" in refused(lambda: Trajectory.load(path, most_bytes=100), InvalidSpec)
    with allowing(100):
        assert "raise most_bytes" in refused(lambda: read(path))
        assert Trajectory.load(path, most_bytes=10**6).dataset.sizes["time"] == 5
    assert "most_bytes must be a number of bytes" in refused(lambda: allowing(float("nan")).__enter__())


def header(shape: tuple[int, ...], descr: str = "<f8") -> bytes:
    file = io.BytesIO()
    np.lib.format.write_array_header_1_0(file, {"descr": descr, "fortran_order": False, "shape": shape})
    return file.getvalue()


def test_an_archive_that_claims_or_holds_too_much_is_refused(tmp_path):
    path = tmp_path / "lie.npz"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("inputs.npy", header((10**12,)))
        archive.writestr("targets.npy", header((10**12,)))
    assert "it claims 1000000000000 numbers and holds 128 bytes" in refused(lambda: from_file(path))
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive, archive.open("inputs.npy", "w") as file:
        file.write(header((50, 10**6)))
        for _ in range(50):
            file.write(bytes(8 * 10**6))
    assert path.stat().st_size < 10**6
    with allowing(10**8):
        assert "must take at most 95.4 MiB, but got 0.373 GiB" in refused(lambda: from_file(path, targets="inputs"))
    np.savez(path, inputs=np.array([{}], dtype=object), targets=np.zeros(3))
    assert "objects, which only running a part of the file could restore" in refused(lambda: from_file(path))
    for content in (b"no array at all", header((3,), "|O")):
        (tmp_path / "lie.npy").write_bytes(content)
        refused(lambda: from_file(tmp_path / "lie.npy", targets="lie.npy"))


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("a = " + "1" * 5000, "a number of more than 400 digits (about line 1)"),
        ("\na = 0x" + "f" * 5000, "a number of more than 400 digits (about line 2)"),
        ("a = " + "1" * 30, "the integer 11111111111111111111..., which has more than 64 bits"),
        ("a = " + "[" * 5000 + "]" * 5000, "more than 16 brackets in each other"),
        ("a = " + "{a=" * 3000 + "1" + "}" * 3000, "more than 16 brackets in each other"),
        ("[" + ".".join("a" * 3000) + "]", "a key of more than 16 parts"),
        (".".join("a" * 20_000) + " = 1", "a key of more than 16 parts"),
        (" . ".join(["'a'", '"b"'] * 10_000) + " = 1", "a key of more than 16 parts"),
        ("#" * 2**21, "must take at most 1 MiB, but got 2 MiB"),
        ('a = "' + '\\"' * 300_000, "Unterminated string"),
        ("a = '''" + "'" * 3 + "[" * 100, "more than 16 brackets"),
    ],
)
def test_a_study_that_would_exhaust_its_parser_is_refused(text, words, tmp_path):
    (tmp_path / "study.toml").write_text(text)
    assert words in refused(lambda: Study.load(tmp_path / "study.toml"), InvalidSpec)


def test_what_is_quoted_or_a_comment_counts_for_nothing(tmp_path):
    deep = "[" * 50 + ".".join("a" * 50)
    path = tmp_path / "study.toml"
    path.write_text(f'# {deep}\na = \'{deep}\'\nb = "\\"{deep}"\nc = \'\'\'\n\'{deep}\'\'\'\nd = """\n"{deep}\\""""\n')
    assert tables_of(path, "the file", why="it is read").keys() == {"a", "b", "c", "d"}
    path.write_text("a = [" + "1.5, " * 300_000 + "]")
    assert len(tables_of(path, "the file", why="it is read", most_bytes=10**7)["a"]) == 300_000


HEADER = "trial,step,input,target\n"
ROWS = "".join(f"{trial},{step},0.5,{trial}\n" for trial in range(3) for step in range(2))


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (
            ",".join(f"input{k}" for k in range(200_000)) + "\n",
            "a table of 200,000 columns and 2 rows must take at most 2",
        ),
        (HEADER + ROWS + "9,0," + "9" * 10**6 + ",1\n9,1,1,1\n", "got '99999"),
        (
            HEADER + ROWS + "9,0,nan,1\n9,1,1,1\n",
            "column 'input' must hold a finite number, but got nothing in trial '9'",
        ),
        (
            HEADER + ROWS + "9,0,inf,1\n9,1,1,1\n",
            "column 'input' must hold a finite number, but got 'inf' in trial '9'",
        ),
        (
            HEADER + ROWS + "a" * 10**6 + ",1,1,1\n",
            "every trial must begin with the step of trial '0', 0, but got trial 'aaa",
        ),
        (",".join("abcdefgh" * 500) + "\n", "columns a, b, c, d, e, f, g, h"),
    ],
)
def test_a_table_is_bounded_and_its_refusal_short(text, words, tmp_path):
    (tmp_path / "trials.csv").write_text(text)
    assert words in refused(lambda: tasks.from_table(tmp_path / "trials.csv"))


def test_a_parquet_file_is_measured_by_its_footer(tmp_path):
    pandas, _ = pytest.importorskip("pandas"), pytest.importorskip("pyarrow")
    frame = pandas.DataFrame({"trial": np.zeros(10**6, dtype=int), "step": 1, "input": 0.0, "target": 0.0})
    frame.to_parquet(tmp_path / "long.parquet")
    words = "a table of 4 columns and 1,000,000 rows must take at most 95.4 MiB"
    assert words in refused(lambda: tasks.from_table(tmp_path / "long.parquet", most_bytes=10**8))


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="this system has no pipes with names")
@pytest.mark.parametrize("suffix", ["csv", "npz", "toml", "nc"])
def test_what_never_ends_is_not_opened(suffix, tmp_path):
    pipe, zero = tmp_path / f"pipe.{suffix}", tmp_path / f"zero.{suffix}"
    os.mkfifo(pipe)
    zero.symlink_to("/dev/zero")
    load = {"toml": Study.load, "nc": Trajectory.load}.get(suffix, from_file)
    for path in (pipe, zero, tmp_path):
        assert "which is a folder, a device or a pipe" in refused(lambda path=path: load(path)) or path == tmp_path


def test_a_model_that_leaves_no_room_is_refused_before_it_is_made(tmp_path):
    path = tmp_path / "study.toml"
    path.write_text('[model]\nkind = "diag-gate"\nhidden_size = 4096\n[task]\ninputs = 2\n')
    study = WindowStudy.load(path)
    with pytest.raises(InvalidSpec, match=r"a cell of 4,096 units must take at most 0.5 GiB, but got 1 GiB"):
        study.settings()
    with allowing(2e9):
        assert study.settings()["model"]["hidden_size"] == 4096


def test_a_network_that_leaves_no_room_is_refused_before_it_is_made(tmp_path):
    text = (EXAMPLES / "two_integration_tasks.toml").read_text(encoding="utf-8")
    path = tmp_path / "wide.toml"
    path.write_text(text.replace("hidden_size = 128", "hidden_size = 4096"), encoding="utf-8")
    with pytest.raises(InvalidSpec, match=r"a network of 4,096 units must take at most 0.5 GiB, but got 0.62"):
        Study.load(path)
    with allowing(1e9):
        assert Study.load(path).network.hidden_size == 4096
