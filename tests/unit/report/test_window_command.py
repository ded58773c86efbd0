"""`learncast window`: studies, models in files of your own, and refusals."""

import json
import pickle
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import save_file
from typer.testing import CliRunner

import learncast as lc
from learncast import windows
from learncast.cli import app
from learncast.report import window_report
from learncast.results import FORECAST_CLASSES
from learncast.study import WindowStudy
from learncast.windows.example_model import KINDS, build_model, build_optimizer, train_on_batches
from learncast.windows.stored_model import built_model

EXAMPLE = Path(__file__).parents[3] / "examples" / "multi_lag_window.toml"
STUDY = """
name = "small"
[model]
kind = "diag-gate"
hidden_size = 4
[training]
steps = 3
batch = 8
[task]
steps = 16
inputs = 2
lags = [2]
coefficients = [1.0]
sequences = 16
[window]
lags = [1, 2, 4]
sequences = 128
nulls = 19
"""
BUILD = """
import torch
from learncast.windows.example_model import build_model

def build():
    return build_model("gru", inputs=2, outputs=1, hidden_size=4, seed=0)

def pair():
    model = build()
    return model, torch.optim.AdamW(model.parameters(), lr=1e-2)

def nothing():
    return 3

def broken():
    raise RuntimeError("no data disk")
"""


def run(*arguments):
    result = CliRunner(env={"COLUMNS": "200", "TERM": "dumb"}).invoke(app, ["window", *map(str, arguments)])
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result


def refused(*arguments):
    result = run(*arguments)
    assert result.exit_code == 2, result.output
    assert "Traceback" not in result.output
    return result.stderr


@pytest.fixture
def study(tmp_path):
    def written(text=STUDY):
        path = tmp_path / "study.toml"
        path.write_text(text, encoding="utf-8")
        return path

    return written


@pytest.fixture(scope="module")
def own(tmp_path_factory):
    """A model file, weights and optimiser states in both forms, data, and what is expected."""
    folder = tmp_path_factory.mktemp("own")
    rng = np.random.default_rng(0)
    inputs = rng.standard_normal((128, 16, 2)).astype(np.float32)
    targets = np.roll(inputs[..., :1], 2, axis=1)
    (folder / "net.py").write_text(BUILD, encoding="utf-8")
    np.savez(folder / "data.npz", inputs=inputs, targets=targets)
    model = build_model("gru", inputs=2, outputs=1, hidden_size=4, seed=7)
    optimizer = build_optimizer("adamw", model, learning_rate=1e-2)
    train_on_batches(model, optimizer, inputs, targets, steps=3, batch=16, rng=rng)
    save_file(dict(model.state_dict()), folder / "net.safetensors")
    torch.save(model.state_dict(), folder / "net.pt")
    torch.save(optimizer.state_dict(), folder / "opt.pt")
    found = windows.window(model, inputs, targets, optimizer=optimizer, measurement=windows.Measurement(lags=[1, 2, 4]))
    return folder, found


def call(folder, function="build", weights="net.safetensors"):
    return ("--model", f"{folder / 'net.py'}:{function}", "--weights", folder / weights, "--data", folder / "data.npz")


def test_a_study_is_trained_and_diagnosed(study, tmp_path):
    result = run(study(), "--json", "--out", tmp_path / "out")
    assert result.exit_code == 0, result.stderr
    found = json.loads(result.stdout)
    keys = {"lags", "envelope", "envelope_gate", "envelope_optimizer", "tail_index", "scale", "signal", "window"}
    keys |= {"required_sequences", "null_window", "decay", "time_scales", "method", "validity", "summary", "class"}
    assert keys <= set(found)
    assert found["lags"] == [1, 2, 4]
    assert found["promise"] == FORECAST_CLASSES["measured"]
    assert list(found["window"]) == ["2", "4", "8", "16", "32", "64", "128", "256", "512"]
    assert len(found["time_scales"]) == 4
    assert {"kind", "rate"} <= set(found["decay"])
    assert found["validity"][0]["assumption"] == "faithful_replay"
    assert "128" in found["summary"]
    names = ["report.html", "study.toml", "window.json", "window.nc", "window.png"]
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == names
    again = windows.Window.load(tmp_path / "out" / "window.nc")
    assert again.summary == found["summary"]


def test_the_resolved_study_gives_the_same_answer(study, tmp_path):
    first = window_report(WindowStudy.load(study()))
    again = window_report(WindowStudy.load(study(first.study)))
    assert again.json() == first.json()


def test_the_tables_have_a_row_for_every_lag(study):
    rows = [line.split() for line in run(study()).stdout.splitlines()]
    assert [row[0] for row in rows if row and row[0] in ("1", "2", "4")][-3:] == ["1", "2", "4"]
    assert any(row[:2] == ["faithful", "replay"] for row in rows)


def test_recorded_sequences(study, tmp_path):
    rng = np.random.default_rng(0)
    np.savez(tmp_path / "trials.npz", inputs=rng.standard_normal((150, 9, 2)), targets=rng.standard_normal((150, 9, 1)))
    head, tail = STUDY.split("[task]")
    recorded = f'{head}[task]\ndata = "trials.npz"\n[window]{tail.split("[window]")[1]}'
    assert json.loads(run(study(recorded), "--json").stdout)["sequences"] == 128
    assert "150" in refused(study(recorded.replace("sequences = 128", "sequences = 150")))
    assert "steps" in refused(study(recorded.replace('trials.npz"', 'trials.npz"\nsteps = 9')))
    np.savez(tmp_path / "trials.npz", x=np.zeros(3))
    assert "targets" in refused(study(recorded))


def test_keys_have_the_spelling_of_torch():
    with pytest.raises(lc.InvalidSpec) as caught:
        WindowStudy.from_dict({"training": {"optimiser": "sgd"}}, folder=Path(), source="study")
    assert "'optimizer'" in str(caught.value)


def test_a_study_makes_the_objects_of_the_python_interface():
    read = WindowStudy.from_dict(
        {"window": {"lags": [1, 2], "nulls": 19, "chunk": 7, "threshold": 0.2}}, folder=Path(), source="study"
    )
    assert read.question() == {
        "measurement": windows.Measurement(lags=(1, 2)),
        "rule": windows.DetectionRule(nulls=19, threshold=0.2),
        "batching": windows.Batching(chunk=7),
    }


def test_the_example_is_a_study():
    assert WindowStudy.load(EXAMPLE).section.model.kind == "gru"


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_can_be_asked_for(kind):
    read = WindowStudy.from_dict({"model": {"kind": kind}}, folder=Path(), source="study")
    assert read.settings()["model"]["kind"] == kind


@pytest.mark.parametrize(
    ("old", "new", "token"),
    [
        ("hidden_size", "hiden_size", "'hidden_size'"),
        ("[training]", "[trainings]", "'training'"),
        ('"diag-gate"', '"diag-gates"', "'diag-gate'"),
        ("steps = 3", "steps = 0", "training"),
        ("steps = 3", "steps = 3\nmomentum = 0.9", "momentum"),
        ("hidden_size = 4", "hidden_size = 4\nlayers = 2", "layers"),
        ("lags = [1, 2, 4]", "lags = [1, 16]", "lags"),
        ("lags = [2]", "lags = [20]", "task: lags"),
        ("steps = 3", "steps = 3\nlearning_rate = 1e12\noptimizer = 'sgd'\nclip = 1e30", "loss"),
        ("nulls = 19", "nulls = ", "TOML"),
    ],
)
def test_bad_studies_are_refused(study, old, new, token):
    assert token in refused(study(STUDY.replace(old, new, 1)))


@pytest.mark.parametrize("weights", ["net.safetensors", "net.pt"])
def test_a_model_in_a_file_of_your_own(own, weights):
    folder, expected = own
    result = run(*call(folder, "pair", weights), "--optimizer-state", folder / "opt.pt", "--lags", "1,2,4", "--json")
    assert result.exit_code == 0, result.stderr
    assert str(folder / "net.py") in result.stderr  # what is executed is printed
    found = json.loads(result.stdout)
    # Equal numbers in an equal order of operations.
    np.testing.assert_allclose(found["envelope"], expected["envelope"].isel(layer=0), rtol=1e-12)
    np.testing.assert_allclose(found["signal"], expected["signal"].isel(layer=0), rtol=1e-9)
    assert found["optimizer"] == "AdamW"


def test_an_optimizer_by_name(own):
    folder, expected = own
    named = ("--optimizer", "adamw", "--learning-rate", "0.01", "--optimizer-state", folder / "opt.pt")
    found = json.loads(run(*call(folder), *named, "--lags", "1,2,4", "--json").stdout)
    np.testing.assert_allclose(found["envelope"], expected["envelope"].isel(layer=0), rtol=1e-12)
    without = json.loads(run(*call(folder), "--lags", "1:4:2", "--json").stdout)
    assert without["optimizer"] == "none"
    assert without["lags"] == [1, 4]


def test_a_file_that_would_run_code_is_not_read(own, tmp_path):
    folder, _ = own

    class Trap:
        def __reduce__(self):
            return (Path.touch, (tmp_path / "sprung",))

    torch.save({"weights": Trap()}, tmp_path / "trap.pt")
    (tmp_path / "plain.pt").write_bytes(pickle.dumps(Trap()))
    for name in ("trap.pt", "plain.pt"):
        assert name in refused(*call(folder)[:2], "--weights", tmp_path / name, "--data", folder / "data.npz")
    assert not (tmp_path / "sprung").exists()


@pytest.mark.parametrize(
    ("arguments", "token"),
    [
        ((), "--model"),
        (("study.toml", "--model", "net.py:build"), "--model"),
        (("study.toml", "--lags", "1,2"), "--lags"),
        (("--model", "net.py:build"), "--weights"),
        (("--model", "net.py:build", "--set", "lags=4"), "--set"),
        (("study.toml", "--lags", "1.5"), "'1.5'"),
        (("missing.toml",), "missing.toml"),
    ],
)
def test_missing_and_contradictory_options_are_refused(arguments, token):
    assert token in refused(*arguments)


@pytest.mark.parametrize(
    ("change", "token"),
    [
        ({"function": "absent"}, "net.py:absent"),
        ({"function": "nothing"}, "got int"),
        ({"function": "broken"}, "RuntimeError: no data disk"),
        ({"weights": "absent.pt"}, "absent.pt"),
        ({"weights": "net.py"}, ".safetensors"),
        ({"weights": "opt.pt"}, "opt.pt"),
        ({"weights": "data.safetensors"}, "data.safetensors"),
    ],
)
def test_unsuitable_files_are_refused(own, change, token):
    folder, _ = own
    (folder / "data.safetensors").write_bytes(b"nonsense")
    assert token in refused(*call(folder, **change))
    assert str(folder.resolve()) not in sys.path


@pytest.mark.parametrize(
    ("arguments", "token"),
    [
        (("--optimizer-state", "opt.pt"), "--optimizer"),
        (("--optimizer", "adamw"), "--learning-rate"),
        (("--optimizer", "adams", "--learning-rate", "0.1"), "'adam'"),
        (("--optimizer", "adamw", "--learning-rate", "0.1", "--optimizer-state", "net.safetensors"), "AdamW"),
        (("--optimizer", "adamw", "--learning-rate", "0.1", "--optimizer-state", "net.pt"), "AdamW"),
    ],
)
def test_unsuitable_optimizers_are_refused(own, arguments, token):
    folder, _ = own
    files = [folder / one if one.endswith((".pt", ".safetensors")) else one for one in arguments]
    assert token in refused(*call(folder), *files)


def test_an_optimizer_without_a_state_has_the_rates_of_its_first_step(own):
    folder, _ = own
    result = run(*call(folder), "--optimizer", "adamw", "--learning-rate", "0.1", "--json")
    assert json.loads(result.stdout)["optimizer"] == "first-step AdamW"


def shaped(folder, name, inputs=(128, 16, 2), targets=(128, 16, 1)):
    rng = np.random.default_rng(0)
    np.savez(folder / name, inputs=rng.standard_normal(inputs), targets=rng.standard_normal(targets))
    return ("--model", f"{folder / 'net.py'}:build", "--weights", folder / "net.pt", "--data", folder / name)


@pytest.mark.parametrize(
    ("shapes", "token"),
    [
        ({"inputs": (128, 16, 3)}, "(128, 16, 3)"),
        ({"targets": (128, 16, 2)}, "(128, 16, 1)"),
        ({"targets": (128, 16)}, "(128, 16, 1)"),
        ({"inputs": (16, 128, 2), "targets": (128, 1)}, "(16, 128, 2)"),
        ({"inputs": (4, 128, 2), "targets": (4, 128, 1)}, "16"),
        ({"inputs": (128, 2)}, "(128, 2)"),
    ],
)
def test_sequences_of_other_shapes_are_refused(own, tmp_path, shapes, token):
    (tmp_path / "net.py").write_text(BUILD, encoding="utf-8")
    (tmp_path / "net.pt").write_bytes((own[0] / "net.pt").read_bytes())
    assert token in refused(*shaped(tmp_path, "shaped.npz", **shapes))


def state(own, name):
    return torch.load(own[0] / name, weights_only=True)


def first(stored):
    """The table and key of the first tensor of a state that is not a scalar."""
    tables = stored["state"].values() if "state" in stored else [stored]
    return next((table, key) for table in tables for key, value in table.items() if value.dim())


def bent(stored, change):
    table, key = first(stored)
    table[key] = change(table[key])
    return stored


@pytest.mark.parametrize(
    ("change", "token"),
    [
        (lambda s: bent(s, lambda t: t[:, :-1]), "(1, 3)"),
        (lambda s: bent(s, lambda t: t * torch.nan), "NaN"),
        (lambda s: bent(s, lambda t: t.to_sparse()), "sparse"),
        (lambda s: bent(s, lambda t: t + 1j), "torch.complex64"),
        (lambda s: bent(s, lambda t: t[:1, :1].expand(10**6, 10**6)), "(1000000, 1000000)"),
        (lambda s: {k: v for k, v in s.items() if k != "block.bias_hh_l0"}, "block.bias_hh_l0"),
        (lambda s: {**s, "other": torch.zeros(3)}, "other"),
        (lambda s: {**s, 3: 5}, "bent.pt"),
        (lambda s: {**wrapped(s), "other": torch.zeros(3)}, "other"),
        (lambda s: {**wrapped(s), "weights": torch.zeros(3)}, "weights"),
        (lambda s: [s], "list"),
        (lambda s: {**s, "more": bytearray(10)}, "bytearray"),
    ],
)
def test_weights_of_another_model_are_refused(own, tmp_path, change, token):
    torch.save(change(state(own, "net.pt")), tmp_path / "bent.pt")
    assert token in refused(*call(own[0])[:2], "--weights", tmp_path / "bent.pt", "--data", own[0] / "data.npz")


def group(stored, **settings):
    stored["param_groups"][0].update(settings)
    return stored


@pytest.mark.parametrize(
    ("change", "token"),
    [
        (lambda s: bent(s, lambda t: t[:, :-1]), "'exp_avg'"),
        (lambda s: bent(s, lambda t: t * torch.nan), "NaN"),
        (lambda s: group(s, lr=float("nan")), "lr = nan"),
        (lambda s: group(s, betas=(0.9,)), "betas = (0.9,)"),
        (lambda s: group(s, betas="ab"), "'a'"),
        (lambda s: group(s, amsgrad="yes"), "amsgrad = 'yes'"),
        (lambda s: group(s, params=[0]), "group"),
        (lambda s: {"state": s["state"]}, "'param_groups'"),
        (lambda s: {**s, "state": 3}, "AdamW"),
    ],
)
def test_states_of_another_optimizer_are_refused(own, tmp_path, change, token):
    torch.save(change(state(own, "opt.pt")), tmp_path / "bent.pt")
    assert token in refused(*call(own[0], "pair"), "--optimizer-state", tmp_path / "bent.pt")


def wrapped(stored):
    """As Lightning stores the weights of a model inside a module."""
    return {f"model.{name}": value for name, value in stored.items()}


@pytest.mark.parametrize(
    "checkpoint",
    [
        lambda weights, state: {"state_dict": weights, "optimizer": state, "epoch": 3},
        lambda weights, state: {"state_dict": wrapped(weights), "optimizer_states": [state], "lr_schedulers": []},
        lambda weights, state: {"model": {f"module._orig_mod.{k}": v for k, v in weights.items()}, "optimizer": state},
    ],
    ids=["plain", "Lightning", "compiled on several devices"],
)
def test_one_checkpoint_holds_weights_and_state(own, tmp_path, checkpoint):
    torch.save(checkpoint(state(own, "net.pt"), state(own, "opt.pt")), tmp_path / "last.ckpt")
    model = (*call(own[0], "pair")[:2], "--data", own[0] / "data.npz", "--lags", "1,2", "--json")
    both, apart = (
        run(*model, "--weights", weights, "--optimizer-state", optimizer)
        for weights, optimizer in (
            (tmp_path / "last.ckpt", tmp_path / "last.ckpt"),
            (own[0] / "net.pt", own[0] / "opt.pt"),
        )
    )
    assert both.exit_code == 0, both.output
    assert json.loads(both.stdout)["envelope_optimizer"] == json.loads(apart.stdout)["envelope_optimizer"]


@pytest.mark.parametrize("name", ["net.pt", "net.safetensors", "data.npz"])
def test_files_that_are_cut_off_are_refused(own, tmp_path, name):
    content = (own[0] / name).read_bytes()
    (tmp_path / name).write_bytes(content[: len(content) // 2])
    given = [
        tmp_path / name if isinstance(one, Path) and one.name == name else one for one in call(own[0], weights=name)
    ]
    if name == "data.npz":
        given[3] = own[0] / "net.pt"
    assert name in refused(*given)


def test_an_older_file_of_weights_is_read_too(own, tmp_path):
    torch.save(state(own, "net.pt"), tmp_path / "old.pt", _use_new_zipfile_serialization=False)
    arguments = (*call(own[0])[:2], "--weights", tmp_path / "old.pt", "--data", own[0] / "data.npz", "--lags", "1,2")
    assert run(*arguments).exit_code == 0


def test_the_place_of_a_function_is_a_file_and_its_name():
    for place in ("net.py", "net:build", "absent.py:build", "net.py:not a name"):
        with pytest.raises(lc.InvalidSpec) as caught:
            built_model(place)
        assert caught.value.field == "model"


def test_a_study_with_a_control_reports_the_lags_that_are_due_to_the_task(study):
    plain, controlled = (
        json.loads(run(study(text), "--json").stdout)
        for text in (STUDY, STUDY.replace("[window]", "[window]\ncontrol = true"))
    )
    more = {"control_signal", "control_score", "attributable", "control_reach", "attributable_reach"}
    assert set(controlled) - set(plain) == more
    assert controlled["signal"] == plain["signal"]
    assert controlled["attributable"] == [False, True, False]  # the task's lag of 2
    assert controlled["attributable_reach"] == 2
