"""Tasks from long tables: read as they stand, and refused by file, column and trial."""

import sys
import tomllib
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from learncast._core.errors import InvalidSpec
from learncast.study import Study
from learncast.tasks import Task, from_table

EXAMPLES = Path(__file__).parents[4] / "examples"


def refused(call):
    with pytest.raises(InvalidSpec) as caught:
        call()
    error = caught.value
    assert all(len(part.strip()) > 0 for part in (error.required, error.got, error.why, error.remedy))
    return str(error)


@pytest.fixture(scope="module")
def trials():
    rng = np.random.default_rng(0)
    return rng.standard_normal((30, 4, 2)), rng.standard_normal((30, 4, 1))


@pytest.fixture
def frame(trials):
    inputs, targets = trials
    rows = [
        {
            "trial": f"t{p}",
            "step": t,
            "input_a": inputs[p, t, 0],
            "input_b": inputs[p, t, 1],
            "target": targets[p, t, 0],
        }
        for p in range(30)
        for t in range(4)
    ]
    return pd.DataFrame(rows)


def assert_same(one, other):
    for key in ("input_covariance", "cross_covariance", "target_covariance"):
        # the same numbers in the same order, whatever file they came through
        np.testing.assert_array_equal(getattr(one, key).dense(), getattr(other, key).dense())
    assert one.trials == other.trials


@pytest.mark.parametrize("suffix", [".csv", ".parquet", ".CSV", None])
@pytest.mark.parametrize("at", ["end", "every_step"])
def test_a_table_is_its_trials(frame, trials, tmp_path, suffix, at):
    wanted = Task.from_samples(trials[0], trials[1] if at == "every_step" else trials[1][:, -1])
    table = frame
    if suffix is not None:
        table = tmp_path / f"rig{suffix}"
        frame.to_parquet(table) if suffix == ".parquet" else frame.to_csv(table, index=False)
    task = from_table(table, at=at)
    assert_same(task, wanted)
    assert task.name == ("recorded" if suffix is None else "rig")


def test_an_index_with_names_is_columns(frame, trials, tmp_path):
    wanted = from_table(frame)
    indexed = frame.set_index(["trial", "step"])
    indexed.to_parquet(tmp_path / "indexed.parquet")
    for table in (indexed, frame.set_index("trial"), tmp_path / "indexed.parquet"):
        assert_same(from_table(table), wanted)
    assert list(indexed.columns) == ["input_a", "input_b", "target"]  # what was given is left alone


def test_a_table_of_another_library_becomes_one_of_pandas(frame):
    arrow = pytest.importorskip("pyarrow")
    assert_same(from_table(arrow.Table.from_pandas(frame)), from_table(frame))


@pytest.mark.parametrize("made", [lambda f: f.set_index(["trial", "step"]).to_xarray(), lambda f: f["target"], list])
def test_what_is_no_table_is_refused_in_words(frame, made):
    assert "a table must be a path or a pandas DataFrame, but got" in refused(lambda: from_table(made(frame)))


def test_a_table_of_another_library_needs_pyarrow(frame, monkeypatch):
    table = pytest.importorskip("pyarrow").Table.from_pandas(frame)
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    assert "pyarrow must be installed to take tables of other libraries" in refused(lambda: from_table(table))


def test_rows_may_come_in_any_order_and_steps_begin_anywhere(frame, trials):
    shuffled = frame.sample(frac=1.0, random_state=1).assign(step=lambda f: f.step + 7)
    task, wanted = from_table(shuffled), Task.from_samples(trials[0], trials[1][:, -1])
    # trials are read in another order, so the sums are in another order too
    np.testing.assert_allclose(task.input_covariance.dense(), wanted.input_covariance.dense(), atol=1e-14)
    np.testing.assert_allclose(task.cross_covariance.dense(), wanted.cross_covariance.dense(), atol=1e-14)


def test_columns_are_those_named(frame, trials):
    renamed = frame.rename(columns={"trial": "id", "step": "time", "input_b": "light", "target": "choice"})
    task = from_table(renamed, trial="id", step="time", inputs="light", targets=["choice"], centre=True, name="mine")
    assert_same(task, Task.from_samples(trials[0][:, :, 1:], trials[1][:, -1], centre=True))
    assert task.name == "mine"


def test_targets_before_the_end_may_be_empty(frame, trials):
    frame.loc[frame.step < 3, "target"] = np.nan
    assert_same(from_table(frame), Task.from_samples(trials[0], trials[1][:, -1]))
    assert "column 'target' must hold a finite number, but got nothing in trial 't0', row 1" in refused(
        lambda: from_table(frame, at="every_step")
    )


def edited(frame, row, column, value):
    frame = frame.astype({column: object})
    frame.loc[row, column] = value
    return frame


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda f: f.rename(columns={"trial": "trail"}), "must have one column 'trial', but got columns trail, step"),
        (lambda f: f.rename(columns={"trial": "trail"}), "did you mean 'trail'?"),
        (lambda f: f.drop(columns="target"), "must have columns whose names start with 'target'"),
        (
            lambda f: f.drop(index=[4]),
            "every trial must begin with the step of trial 't0', 0, but got trial 't1' with 1",
        ),
        (lambda f: f.drop(index=[5]), "trial 't1' must follow one another by 1, but got step 0 and then 2"),
        (lambda f: pd.concat([f, f.iloc[[9]]]), "trial 't2' must follow one another by 1, but got step 1 twice"),
        (
            lambda f: edited(f, 6, "input_b", np.nan),
            "column 'input_b' must hold a finite number, but got nothing in trial 't1'",
        ),
        (lambda f: edited(f, 6, "input_b", "high"), "but got 'high' in trial 't1', row 7"),
        (lambda f: edited(f, 6, "input_b", np.inf), "but got inf in trial 't1', row 7"),
        (lambda f: edited(f, 6, "step", "late"), "column 'step' must hold a finite number, but got 'late' in row 7"),
        (lambda f: edited(f, 6, "trial", None), "column 'trial' must name a trial, but got nothing in row 7"),
        (lambda f: f.iloc[:0], "must have a row for every step of every trial, but got no row below its header"),
        (lambda f: f.iloc[:4], "must hold at least two trials, but got one, 't0' in column 'trial'"),
        (lambda f: f[["trial", "step"]].values.tolist(), "a table must be a path or a pandas DataFrame, but got list"),
    ],
)
def test_unusable_tables_are_refused(frame, change, words):
    assert words in refused(lambda: from_table(change(frame)))


@pytest.mark.parametrize(
    ("keywords", "words"),
    [
        ({"inputs": "input_c"}, "must have one column 'input_c'"),
        ({"inputs": []}, "inputs must name at least one column"),
        ({"inputs": ["input_a", "target"]}, "must be different columns, but got 'target' named twice"),
        ({"at": "start"}, "at must be one of end, every_step"),
    ],
)
def test_unusable_keywords_are_refused(frame, keywords, words):
    assert words in refused(lambda: from_table(frame, **keywords))


def test_unusable_files_are_refused_by_name(tmp_path):
    (tmp_path / "empty.csv").write_text("")
    (tmp_path / "torn.parquet").write_bytes(b"PAR1 not really")
    (tmp_path / "ragged.csv").write_text("trial,step\n1,2\n1,2,3,4\n")
    (tmp_path / "rig.xlsx").write_text("")
    assert f"{tmp_path / 'empty.csv'} must have a header" in refused(lambda: from_table(tmp_path / "empty.csv"))
    assert f"{tmp_path / 'torn.parquet'} must be a table" in refused(lambda: from_table(tmp_path / "torn.parquet"))
    assert f"{tmp_path / 'ragged.csv'} must be a table" in refused(lambda: from_table(str(tmp_path / "ragged.csv")))
    assert "a file of kind .csv or .parquet, but got rig.xlsx" in refused(lambda: from_table(tmp_path / "rig.xlsx"))
    assert "the table must exist, but got no file" in refused(lambda: from_table(tmp_path / "gone.csv"))


def test_without_pyarrow_parquet_is_refused_in_words(tmp_path, monkeypatch):
    (tmp_path / "rig.parquet").write_bytes(b"")
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    assert "pip install pyarrow" in refused(lambda: from_table(tmp_path / "rig.parquet"))


# --- in a study file -------------------------------------------------------------------------------------------------

STUDY = """
[training]
learning_rate = 1e-3
[target]
data = "rig.csv"
"""


def study(tmp_path, text):
    (tmp_path / "study.toml").write_text(text)
    return Study.load(tmp_path / "study.toml")


def test_a_study_reads_a_table(frame, trials, tmp_path):
    frame.rename(columns={"trial": "id"}).to_csv(tmp_path / "rig.csv", index=False)
    found = study(tmp_path, STUDY + 'trial = "id"\ninputs = "input_a"\ntargets = ["target"]\nat = "every-step"\n')
    assert_same(found.target, Task.from_samples(trials[0][:, :, :1], trials[1]))
    assert found.target.name == "rig"
    again = Study.from_dict(tomllib.loads(found.resolved()), folder=Path("/"), source="resolved")
    assert again.target.hash == found.target.hash


def test_a_study_names_file_and_key_of_a_bad_table(frame, tmp_path):
    frame.to_csv(tmp_path / "rig.csv", index=False)
    np.savez(tmp_path / "rig.npz", inputs=np.ones((3, 2, 1)), targets=np.ones((3, 1)))
    source = str(tmp_path / "study.toml")
    for text, words in (
        (STUDY + 'trial = "triel"\n', f"{source}, [target]: {tmp_path / 'rig.csv'} must have one column 'triel'"),
        (
            STUDY.replace("csv", "npz") + 'at = "end"\n',
            "at belong to a table (.csv or .parquet), but got data = 'rig.npz'",
        ),
        (STUDY.replace("csv", "xls"), "the file that data names must exist"),
        (STUDY + "inputs = 3\n", "target.inputs must be valid"),
        (STUDY + 'tral = "id"\n', "did you mean 'trial'?"),
    ):
        assert words in refused(lambda text=text: study(tmp_path, text))


def test_the_example_is_what_its_script_writes(tmp_path, monkeypatch):
    script = tmp_path / "make_recorded_trials.py"
    script.write_text((EXAMPLES / "make_recorded_trials.py").read_text())
    exec(compile(script.read_text(), str(script), "exec"), {"__name__": "__main__", "__file__": str(script)})
    assert (tmp_path / "recorded_trials.csv").read_bytes() == (EXAMPLES / "recorded_trials.csv").read_bytes()
    task = Study.load(EXAMPLES / "recorded_data.toml").task("recorded")
    assert (task.trials, task.steps, task.inputs, task.outputs) == (150, 12, 2, 2)
