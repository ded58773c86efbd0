"""Dropped files: kept in memory under a token, read within limits, and named exactly in exported studies."""

from __future__ import annotations

import io
import json
import tomllib
import zipfile

import numpy as np
import pytest

import learncast
from learncast import InvalidSpec, LearncastError, Task
from learncast.display import bracketed_interval
from learncast.report.forecast import forecast_report as forecast
from learncast.study import Study
from learncast.web import UPLOADS, Uploads, all_panels, answer, export, export_site, uploads

CURRICULUM, *_, WINDOW = all_panels()


def recorded(trials=60, **changes):
    rng = np.random.default_rng(0)
    x = rng.normal(size=(trials, 8, 1))
    y = x.sum(axis=1)
    file = io.BytesIO()
    np.savez(file, **{"inputs": x, "targets": y, **changes})
    return file.getvalue(), x, y


def table_of(x, y):
    rows = [f"{i},{t},{float(x[i, t, 0])!r},{float(y[i, 0])!r}" for i in range(len(x)) for t in range(x.shape[1])]
    return "\n".join(["trial,step,input,target", *rows]).encode()


def dropped(name, content):
    """The panel for a dropped file, and its initial state."""
    panel = CURRICULUM.open_file(UPLOADS.add(name, content))
    return panel, panel.state_of(panel.examples[0])


def test_dropped_trials_get_the_plan_of_the_library():
    content, x, y = recorded()
    panel, state = dropped("mine.npz", content)
    view = panel.parts["portrait"](state)
    own = Task.from_samples(x, y, name="mine")
    # The network, the goal and the safe learning rate are those of the Python interface for data alone.
    direct = learncast.forecast(x, y)
    firsts = [Task.from_samples(x, s * y, name=f"targets × {s:g}") for s in (0.5, 1.5, 2.0, 3.0)]
    plan = learncast.plan(own, firsts, direct.method.network, learning_rate=direct.learning_rate)
    found = {reading.label: reading.value for reading in view.readings}
    assert (found["direct training"], found["with the plan"]) == (plan.direct_steps, plan.total)
    assert found["direct training"] == direct.steps.descent
    assert view.readings[0].text == direct.steps.count + bracketed_interval(direct.steps.interval)
    bars = view.charts[0].traces[0]
    steps = {c.task.name: c.forecast.steps.descent for c in plan.candidates}
    assert dict(zip(bars.x, bars.y, strict=True)) == {"train directly": plan.direct_steps, **steps}
    # The other examples stay.
    assert [panel.state_of(one) for one in panel.examples[1:]] == list(map(CURRICULUM.state_of, CURRICULUM.examples))


def test_tables_and_arrays_are_scaled_alike():
    content, x, y = recorded()
    opened = [dropped("mine.csv", table_of(x, y)), dropped("mine.npz", content)]
    one, other = ([r.value for r in panel.parts["portrait"](state).readings] for panel, state in opened)
    np.testing.assert_allclose(one, other, rtol=1e-9)


def test_classes_are_not_scaled():
    _, _, y = recorded()
    panel, state = dropped("classes.npz", recorded(targets=(y[:, 0] > 0).astype(int))[0])
    view = panel.parts["portrait"](state)
    assert len(view.charts[0].traces[0].x) == 1


NAMES = ["trials (1).csv", 'a "quoted" name.csv', "tab\tand\nnewline.csv", "été 日本.csv", "#[x]='1'.csv", "\x7f.csv"]


@pytest.mark.slow_cases("spaces", "quotes", "unicode", "delete")
@pytest.mark.parametrize(
    "name", [*NAMES, f"{'long' * 60}.csv"], ids=["spaces", "quotes", "tabs", "unicode", "brackets", "delete", "long"]
)
def test_the_exported_study_names_the_dropped_file_exactly(name, tmp_path):
    _, x, y = recorded()
    panel, state = dropped(name, table_of(x, y))
    text = panel.study(state)
    assert tomllib.loads(text)["target"] == {"data": name}
    (tmp_path / name).write_bytes(table_of(x, y))
    (tmp_path / "study.toml").write_text(text, encoding="utf-8")
    steps = forecast(Study.load(tmp_path / "study.toml")).values["descent_steps"]
    assert steps == panel.parts["portrait"](state).readings[0].value


def test_the_exported_study_has_the_network_of_the_panel():
    rng = np.random.default_rng(0)
    x = rng.normal(size=(60, 8, 3))
    panel, state = dropped("three.npz", recorded(inputs=x, targets=x.sum(axis=1))[0])
    few = state.model_copy(update={"hidden_size": 1})
    assert tomllib.loads(panel.study(few))["network"]["hidden_size"] == 3


@pytest.mark.parametrize("name", ["../../etc/trials.csv", "C:\\data\\trials.csv", "/trials.csv"])
def test_a_name_keeps_no_folder(name):
    assert UPLOADS.file(UPLOADS.add(name, b"x"))[0] == "trials.csv"


def bomb():
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        head = io.BytesIO()
        np.lib.format.write_array_header_1_0(head, {"descr": "<f8", "fortran_order": False, "shape": (10**6, 100, 100)})
        archive.writestr("inputs.npy", head.getvalue() + b"\0" * 10**6)
    return file.getvalue()


BAD = [
    ("curriculum", "x.npz", b"nothing"),
    ("curriculum", "x.npz", bomb()),
    ("curriculum", "x.csv", b"a,b\n1,2\n"),
    ("curriculum", "x.csv", b"\xff\xfe\x00"),
    ("curriculum", "x.pickle", b"\x80\x04"),
    ("window", "window.nc", b"nothing"),
    ("window", "../../etc/passwd", b"nothing"),
    ("window", f"x.{'long' * 80}", b"nothing"),
    ("window", "x.\0", b"nothing"),
]


@pytest.mark.parametrize(("panel", "name", "content"), BAD, ids=lambda one: one if isinstance(one, str) else "")
def test_an_error_names_a_bad_file_and_not_its_path(panel, name, content):
    chosen = CURRICULUM if panel == "curriculum" else WINDOW
    with pytest.raises(LearncastError) as error:
        chosen.open_file(UPLOADS.add(name, content))
    assert "learncast-" not in str(error.value)
    assert "/" not in str(error.value).replace("np.savez", "").replace("inputs/targets", "")


def test_large_and_old_files_are_not_kept():
    store = Uploads()
    with pytest.raises(InvalidSpec):
        store.add("x.npz", b"x" * (uploads.MOST_BYTES + 1))
    assert not store.files
    tokens = [store.add(f"{k}.npz", bytes([k])) for k in range(uploads.MOST_FILES + 1)]
    with pytest.raises(InvalidSpec) as error:
        store.file(tokens[0])
    assert error.value.field == "data"
    assert store.file(tokens[-1])[0] == f"{uploads.MOST_FILES}.npz"


@pytest.mark.parametrize(
    ("panel", "part", "token"),
    [(CURRICULUM, "portrait", "0" * 32), (WINDOW, "window", "../x")],
    ids=["trials", "window"],
)
def test_an_unknown_token_is_an_error(panel, part, token):
    with pytest.raises(InvalidSpec) as error:
        panel.parts[part](panel.state(data=token))
    assert error.value.field == "data"


def test_an_exported_site_holds_the_answers_of_the_panels(tmp_path, monkeypatch):
    quick = [panel for panel in all_panels() if panel.name in ("recurrence", "window")]
    monkeypatch.setattr(export, "all_panels", lambda window: quick)
    export_site(tmp_path / "site")
    for panel in quick:
        for k, example in enumerate(panel.examples):
            for part, show in panel.parts.items():
                stored = json.loads((tmp_path / "site" / "api" / panel.name / f"{part}-{k}.json").read_text())
                assert stored["answer"] == show(panel.state_of(example)).answer
    assert 'data-static="true"' in (tmp_path / "site" / "index.html").read_text()
    listed = json.loads((tmp_path / "site" / "api" / "panels.json").read_text())
    texts = [one["introduction"] for one in listed] + [e["look"] for one in listed for e in one["examples"]]
    assert all(texts)
    assert not any("rag " in text for text in texts)  # nothing can be dragged in a copy
    assert (tmp_path / "site" / "assets" / "plotly.min.js").stat().st_size > 1e6
    with pytest.raises(InvalidSpec) as error:
        export_site(tmp_path / "site")
    assert error.value.field == "--export"


def saved_study(panel, **changes):
    return panel.study(panel.state(**changes))


@pytest.mark.parametrize(
    ("panel", "changes"),
    [
        ("curriculum", {"family": "composed", "parts": 3, "angle": 40.0}),
        ("curriculum", {"pin_value": 1.5, "pin_accuracy": 0.65}),
        ("prior-knowledge", {"input_angle": 0.0, "time": 0.25}),
        ("recurrence", {"recurrence": 0.7}),
        ("generalise", {}),
    ],
)
def test_a_saved_study_opens_with_its_settings(panel, changes):
    panel = next(one for one in all_panels() if one.name == panel)
    token = UPLOADS.add("mine.toml", saved_study(panel, **changes).encode())
    opened = json.loads(answer(panel, "file", token))
    assert opened["name"] == panel.name
    assert panel.state.model_validate_json(json.dumps(opened["state"])) == panel.state(**changes)


@pytest.mark.parametrize(
    ("text", "panel"),
    [
        ("[target\n", "curriculum"),
        ("[target]\nfamily = 'static'\n", "curriculum"),
        (saved_study(all_panels()[0]), "prior-knowledge"),
        (saved_study(all_panels()[0]).replace("steps = 50", "steps = 51", 1), "curriculum"),
        ('# explorer, curriculum: {"steps": "many"}\n', "curriculum"),
        ("# explorer, curriculum: {\n# explorer, curriculum: {\n", "curriculum"),
    ],
    ids=["syntax", "not saved here", "another panel", "changed", "no state", "two states"],
)
def test_other_studies_are_rejected(text, panel):
    panel = next(one for one in all_panels() if one.name == panel)
    with pytest.raises(InvalidSpec):
        answer(panel, "file", UPLOADS.add("mine.toml", text.encode()))
