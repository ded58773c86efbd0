"""Tasks from long tables: what is read, and what is refused by file, column and trial."""

import sys
import tomllib
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import learncast as lc
from learncast import InvalidSpec, Task
from learncast.study import Study
from learncast.tasks import from_table

EXAMPLES = Path(__file__).parents[4] / "examples"


def refused(call):
    """The field of the InvalidSpec that a call raises."""
    with pytest.raises(InvalidSpec) as caught:
        call()
    return caught.value.field


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
        # the same numbers in the same order
        np.testing.assert_array_equal(getattr(one, key).dense(), getattr(other, key).dense())
    assert one.trials == other.trials


@pytest.mark.parametrize("suffix", [".csv", ".parquet", ".CSV", None])
@pytest.mark.parametrize("at", ["end", "every_step"])
def test_a_table_gives_the_task_of_its_trials(frame, trials, tmp_path, suffix, at):
    wanted = Task.from_samples(trials[0], trials[1] if at == "every_step" else trials[1][:, -1])
    table = frame
    if suffix is not None:
        table = tmp_path / f"rig{suffix}"
        frame.to_parquet(table) if suffix == ".parquet" else frame.to_csv(table, index=False)
    task = from_table(table, at=at)
    assert_same(task, wanted)
    assert task.name == ("recorded" if suffix is None else "rig")


def test_named_index_levels_are_columns(frame, trials, tmp_path):
    wanted = from_table(frame)
    indexed = frame.set_index(["trial", "step"])
    indexed.to_parquet(tmp_path / "indexed.parquet")
    for table in (indexed, frame.set_index("trial"), tmp_path / "indexed.parquet"):
        assert_same(from_table(table), wanted)
    assert list(indexed.columns) == ["input_a", "input_b", "target"]  # the given frame is not changed


def test_a_table_of_another_library_is_converted_to_pandas(frame):
    arrow = pytest.importorskip("pyarrow")
    assert_same(from_table(arrow.Table.from_pandas(frame)), from_table(frame))


@pytest.mark.parametrize("made", [lambda f: f.set_index(["trial", "step"]).to_xarray(), lambda f: f["target"], list])
def test_other_objects_are_refused(frame, made):
    assert refused(lambda: from_table(made(frame))) == "table"


def test_a_table_of_another_library_needs_pyarrow(frame, monkeypatch):
    table = pytest.importorskip("pyarrow").Table.from_pandas(frame)
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(InvalidSpec):
        from_table(table)


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
    assert refused(lambda: from_table(frame, at="every_step")) == "target"


def edited(frame, row, column, value):
    frame = frame.astype({column: object})
    frame.loc[row, column] = value
    return frame


@pytest.mark.parametrize(
    ("change", "field"),
    [
        (lambda f: f.rename(columns={"trial": "trail"}), "trial"),
        (lambda f: f.drop(columns="target"), "targets"),
        (lambda f: f.drop(index=[4]), "step"),  # a trial that begins later
        (lambda f: f.drop(index=[5]), "step"),  # a missing step
        (lambda f: pd.concat([f, f.iloc[[9]]]), "step"),  # a step twice
        (lambda f: edited(f, 6, "input_b", np.nan), "input_b"),
        (lambda f: edited(f, 6, "input_b", "high"), "input_b"),
        (lambda f: edited(f, 6, "input_b", np.inf), "input_b"),
        (lambda f: edited(f, 6, "step", "late"), "step"),
        (lambda f: edited(f, 6, "trial", None), "trial"),
        (lambda f: f.iloc[:0], "table"),
        (lambda f: f.iloc[:4], "trial"),  # one trial only
        (lambda f: f[["trial", "step"]].values.tolist(), "table"),
    ],
)
def test_invalid_tables_are_refused_by_column(frame, change, field):
    assert refused(lambda: from_table(change(frame))) == field


@pytest.mark.parametrize(
    ("change", "place"),
    [
        (lambda f: edited(f, 6, "input_b", "high"), "row 7, trial 't1'"),
        (lambda f: edited(f, 6, "step", "late"), "row 7, trial 't1'"),
        (lambda f: f.drop(index=[5]), "trial 't1'"),
        (lambda f: pd.concat([f, f.iloc[[9]]]), "trial 't2'"),
    ],
)
def test_a_bad_cell_is_reported_by_its_row_and_trial(frame, change, place):
    with pytest.raises(InvalidSpec) as caught:
        from_table(change(frame))
    assert place in str(caught.value)


@pytest.mark.parametrize(
    ("keywords", "field"),
    [
        ({"inputs": "input_c"}, "input_c"),
        ({"inputs": []}, "inputs"),
        ({"inputs": ["input_a", "target"]}, "target"),
        ({"at": "start"}, "at"),
    ],
)
def test_invalid_keywords_are_refused_by_name(frame, keywords, field):
    assert refused(lambda: from_table(frame, **keywords)) == field


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("empty.csv", b""),
        ("torn.parquet", b"PAR1 not really"),
        ("ragged.csv", b"trial,step\n1,2\n1,2,3,4\n"),
        ("rig.xlsx", b""),
        ("gone.csv", None),
    ],
)
def test_unreadable_files_are_refused_by_name(tmp_path, name, content):
    if content is not None:
        (tmp_path / name).write_bytes(content)
    with pytest.raises(InvalidSpec) as caught:
        from_table(tmp_path / name)
    assert name in str(caught.value)


def test_parquet_needs_pyarrow(tmp_path, monkeypatch):
    (tmp_path / "rig.parquet").write_bytes(b"")
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(InvalidSpec) as caught:
        from_table(tmp_path / "rig.parquet")
    assert "pyarrow" in str(caught.value)


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


@pytest.mark.parametrize(
    ("text", "place"),
    [
        (STUDY + 'trial = "triel"\n', "rig.csv"),
        (STUDY.replace("csv", "npz") + 'at = "end"\n', "rig.npz"),
        (STUDY.replace("csv", "xls"), "rig.xls"),
        (STUDY + "inputs = 3\n", "target.inputs"),
        (STUDY + 'tral = "id"\n', "tral"),
    ],
)
def test_a_study_reports_the_file_and_key_of_a_bad_table(frame, tmp_path, text, place):
    frame.to_csv(tmp_path / "rig.csv", index=False)
    np.savez(tmp_path / "rig.npz", inputs=np.ones((3, 2, 1)), targets=np.ones((3, 1)))
    with pytest.raises(InvalidSpec) as caught:
        study(tmp_path, text)
    assert str(tmp_path / "study.toml") in str(caught.value)
    assert place in str(caught.value)


def test_the_example_is_what_its_script_writes(tmp_path, monkeypatch):
    script = tmp_path / "make_recorded_trials.py"
    script.write_text((EXAMPLES / "make_recorded_trials.py").read_text())
    exec(compile(script.read_text(), str(script), "exec"), {"__name__": "__main__", "__file__": str(script)})
    assert (tmp_path / "recorded_trials.csv").read_bytes() == (EXAMPLES / "recorded_trials.csv").read_bytes()
    task = Study.load(EXAMPLES / "recorded_data.toml").task("recorded")
    assert (task.trials, task.steps, task.inputs, task.outputs) == (150, 12, 2, 2)


@pytest.mark.parametrize("names", [np.arange(30), [f"trial {k}" for k in range(30)], [f"{k}.0" for k in range(30)]])
def test_the_order_of_rows_changes_neither_trials_nor_intervals(names, tmp_path):
    rng = np.random.default_rng(0)
    inputs = rng.normal(size=(30, 3, 2))
    targets = inputs.sum(axis=1)[:, :1] + rng.normal(size=(30, 1))
    rows = [(names[k], t, *inputs[k, t], targets[k, 0]) for k in range(30) for t in range(3)]
    table = pd.DataFrame(rows, columns=["trial", "step", "input 0", "input 1", "target"])
    mixed = table.sample(frac=1.0, random_state=1)
    mixed.to_csv(tmp_path / "mixed.csv", index=False)
    network = lc.LinearRNN.random(2, 3, 1, scale=0.3, recurrence=0.5, rng=0)
    made = [lc.Task.from_samples(inputs, targets), *map(lc.tasks.from_table, (table, mixed, tmp_path / "mixed.csv"))]
    steps = [lc.forecast(task, network, learning_rate=0.05, goal=lc.R2(0.5)).steps for task in made]
    assert steps[0].interval is not None
    assert len({(one.descent, one.interval) for one in steps}) == 1
