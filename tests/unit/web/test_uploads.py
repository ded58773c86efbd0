"""Dropped files: kept by a token, a few of them, read within limits, and never named by a path."""

from __future__ import annotations

import io
import json
import zipfile

import numpy as np
import pytest

import learncast
from learncast import LinearRNN, Task
from learncast._core.errors import InvalidSpec, LearncastError
from learncast.web import uploads
from learncast.web.app import rooms
from learncast.web.uploads import MOST_BYTES, UPLOADS, Uploads

CURRICULUM, *_, WINDOW = rooms()


def recorded(trials=60, **changes):
    rng = np.random.default_rng(0)
    x = rng.normal(size=(trials, 8, 1))
    y = x.sum(axis=1)
    file = io.BytesIO()
    np.savez(file, **{"inputs": x, "targets": y, **changes})
    return file.getvalue(), x, y


def test_trials_get_the_plan_of_the_library():
    content, x, y = recorded()
    room = CURRICULUM.opened(UPLOADS.keep("mine.npz", content))
    state = room.shown(room.examples[0])
    view = room.parts["portrait"](state)
    own = Task.from_samples(x, y, name="mine")
    network = LinearRNN.aligned(recurrence=0.96, initial=0.01, hidden_size=128, task=own)
    told = learncast.plan(
        own,
        [Task.from_samples(x, s * y, name=f"targets × {s:g}") for s in (0.5, 1.5, 2.0, 3.0)],
        network,
        learning_rate=1e-3,
    )
    found = {reading.label: reading.value for reading in view.readings}
    assert (found["direct training"], found["with the plan"]) == (told.direct_steps, told.total)
    bars = view.panels[0].traces[0]
    steps = {c.task.name: c.curriculum.descent_steps for c in told.candidates}
    assert dict(zip(bars.x, bars.y, strict=True)) == {"train directly": told.direct_steps, **steps}
    assert room.study(state).startswith("# learncast forecast ")
    # The other examples are those of the room.
    assert [room.shown(one) for one in room.examples[1:]] == [CURRICULUM.shown(one) for one in CURRICULUM.examples]


def test_a_table_is_scaled_as_arrays_are():
    content, x, y = recorded()
    rows = ["trial,step,input,target"]
    rows += [f"{i},{t},{float(x[i, t, 0])!r},{float(y[i, 0])!r}" for i in range(60) for t in range(8)]
    table = CURRICULUM.opened(UPLOADS.keep("mine.csv", "\n".join(rows).encode()))
    arrays = CURRICULUM.opened(UPLOADS.keep("mine.npz", content))
    views = [room.parts["portrait"](room.shown(room.examples[0])) for room in (table, arrays)]
    one, other = ([r.value for r in view.readings] for view in views)
    np.testing.assert_allclose(one, other, rtol=1e-9)


def test_classes_have_no_stronger_targets():
    content, _, y = recorded()
    labelled = recorded(targets=(y[:, 0] > 0).astype(int))[0]
    room = CURRICULUM.opened(UPLOADS.keep("classes.npz", labelled))
    view = room.parts["portrait"](room.shown(room.examples[0]))
    assert any("cannot be made stronger" in note.text for note in view.notes)
    assert len(view.panels[0].traces[0].x) == 1
    assert content


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
]


@pytest.mark.parametrize(("room", "name", "content"), BAD, ids=lambda one: one if isinstance(one, str) else "")
def test_a_bad_file_is_refused_by_its_own_name(room, name, content):
    chosen = CURRICULUM if room == "curriculum" else WINDOW
    with pytest.raises(LearncastError) as refusal:
        chosen.opened(UPLOADS.keep(name, content))
    assert "learncast-" not in str(refusal.value)
    assert "/" not in str(refusal.value).replace("np.savez", "").replace("inputs/targets", "")


def test_large_and_forgotten_files():
    store = Uploads()
    with pytest.raises(InvalidSpec, match="at most 20 MB"):
        store.keep("x.npz", b"x" * (MOST_BYTES + 1))
    tokens = [store.keep(f"{k}.npz", bytes([k])) for k in range(uploads.MOST_FILES + 1)]
    with pytest.raises(InvalidSpec, match="drop it again"):
        store.name(tokens[0])
    assert store.name(tokens[-1]) == f"{uploads.MOST_FILES}.npz"


def test_an_unknown_token_is_a_sentence():
    with pytest.raises(InvalidSpec, match="drop it again"):
        CURRICULUM.parts["portrait"](CURRICULUM.state(data="0" * 32))
    with pytest.raises(InvalidSpec, match="drop it again"):
        WINDOW.parts["window"](WINDOW.state(data="../x"))


def test_an_export_holds_what_the_rooms_say(tmp_path, monkeypatch):
    from learncast.web import export

    quick = [room for room in rooms() if room.name in ("recurrence", "window")]
    monkeypatch.setattr(export, "rooms", lambda: quick)
    export.exported(tmp_path / "site")
    for room in quick:
        for k, example in enumerate(room.examples):
            for part, show in room.parts.items():
                kept = json.loads((tmp_path / "site" / "api" / room.name / f"{part}-{k}.json").read_text())
                assert kept["answer"] == show(room.shown(example)).answer
    assert 'data-answers="kept"' in (tmp_path / "site" / "index.html").read_text()
    assert (tmp_path / "site" / "assets" / "plotly.min.js").stat().st_size > 1e6
    with pytest.raises(InvalidSpec, match="new or an empty folder"):
        export.exported(tmp_path / "site")
