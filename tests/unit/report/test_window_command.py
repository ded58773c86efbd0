"""The command that diagnoses a model: studies, a person's own files, and what is refused."""

import json
import pickle
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
import xarray as xr
from safetensors.torch import save_file
from typer.testing import CliRunner

from learncast import windows
from learncast._core.errors import InvalidSpec
from learncast.cli import app
from learncast.report.window import rehearsed_window
from learncast.results import FORECAST_CLASSES
from learncast.study import WindowStudy
from learncast.windows.checkpoints import course, in_order
from learncast.windows.example_model import KINDS, build_model, build_optimizer, train_on_batches
from learncast.windows.stored_model import optimizer_tensors

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
    save_file(optimizer_tensors(optimizer, model), folder / "opt.safetensors")
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
    assert found["summary"].startswith("With 128 sequences")
    names = ["report.html", "study.toml", "window.json", "window.nc", "window.png"]
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == names
    again = windows.Window.load(tmp_path / "out" / "window.nc")
    assert again.summary == found["summary"]


def test_the_resolved_study_gives_the_same_answer(study, tmp_path):
    first = rehearsed_window(WindowStudy.load(study()))
    again = rehearsed_window(WindowStudy.load(study(first.study)))
    assert again.json() == first.json()


def test_people_read_tables(study):
    text = run(study()).stdout
    assert "Longest learnable lag" in text
    assert "Lag by lag" in text
    assert "How far to trust it" in text


def test_recorded_sequences(study, tmp_path):
    rng = np.random.default_rng(0)
    np.savez(tmp_path / "trials.npz", inputs=rng.standard_normal((150, 9, 2)), targets=rng.standard_normal((150, 9, 1)))
    head, tail = STUDY.split("[task]")
    recorded = f'{head}[task]\ndata = "trials.npz"\n[window]{tail.split("[window]")[1]}'
    assert json.loads(run(study(recorded), "--json").stdout)["sequences"] == 128
    assert "more than the 150 sequences" in refused(study(recorded.replace("sequences = 128", "sequences = 150")))
    assert "leave nothing to say about steps" in refused(
        study(recorded.replace('trials.npz"', 'trials.npz"\nsteps = 9'))
    )
    np.savez(tmp_path / "trials.npz", x=np.zeros(3))
    assert "must hold inputs and targets" in refused(study(recorded))


def test_the_other_spelling_is_refused_by_naming_torch_s():
    with pytest.raises(InvalidSpec, match="did you mean 'optimizer'"):
        WindowStudy.from_dict({"training": {"optimiser": "sgd"}}, folder=Path(), source="study")


def test_a_study_asks_by_the_same_objects():
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
    ("old", "new", "words"),
    [
        ("hidden_size", "hiden_size", "did you mean 'hidden_size'?"),
        ("[training]", "[trainings]", "did you mean 'training'?"),
        ('"diag-gate"', '"diag-gates"', "did you mean 'diag-gate'?"),
        ("steps = 3", "steps = 0", "adamw has no step sizes before its first step"),
        ("steps = 3", "steps = 3\nmomentum = 0.9", "momentum is a key of sgd and rmsprop"),
        ("hidden_size = 4", "hidden_size = 4\nlayers = 2", "layers is a key of gru, lstm and rnn"),
        ("lags = [1, 2, 4]", "lags = [1, 16]", "lags must grow and stay within 15"),
        ("lags = [2]", "lags = [20]", "task: lags must be less than the 16 steps"),
        ("steps = 3", "steps = 3\nlearning_rate = 1e12\noptimizer = 'sgd'\nclip = 1e30", "must keep a finite loss"),
        ("nulls = 19", "nulls = ", "must be a TOML file"),
    ],
)  # fmt: skip
def test_studies_that_mean_nothing(study, old, new, words):
    assert words in refused(study(STUDY.replace(old, new, 1)))


@pytest.mark.parametrize("weights", ["net.safetensors", "net.pt"])
@pytest.mark.parametrize("state", ["opt.pt", "opt.safetensors"])
def test_a_model_of_ones_own(own, weights, state):
    folder, expected = own
    result = run(*call(folder, "pair", weights), "--optimizer-state", folder / state, "--lags", "1,2,4", "--json")
    assert result.exit_code == 0, result.stderr
    assert result.stderr.startswith(f"learncast: executing {folder / 'net.py'}")
    found = json.loads(result.stdout)
    # The same numbers in the same order of operations.
    np.testing.assert_allclose(found["envelope"], expected["envelope"].isel(layer=0), rtol=1e-12)
    np.testing.assert_allclose(found["signal"], expected["signal"].isel(layer=0), rtol=1e-9)
    assert found["optimizer"] == "AdamW"


def test_an_optimiser_by_name(own):
    folder, expected = own
    named = ("--optimizer", "adamw", "--learning-rate", "0.01", "--optimizer-state", folder / "opt.safetensors")
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
        words = refused(*call(folder)[:2], "--weights", tmp_path / name, "--data", folder / "data.npz")
        assert "must hold tensors and plain numbers only" in words
        assert "it is not run here" in words
    assert not (tmp_path / "sprung").exists()


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ((), "either STUDY or --model must be given, but got neither"),
        (("study.toml", "--model", "net.py:build"), "but got both"),
        (("study.toml", "--lags", "1,2"), "a study must say everything itself"),
        (("--model", "net.py:build"), "--model needs --weights"),
        (("study.toml", "--lags", "1.5"), "--lags must be whole numbers"),
        (("missing.toml",), "the study file must exist"),
    ],
)
def test_half_a_question(arguments, words):
    assert words in refused(*arguments)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"function": "absent"}, "no such function"),
        ({"function": "nothing"}, "must build a torch.nn.Module, but got int"),
        ({"function": "broken"}, "RuntimeError: no data disk"),
        ({"weights": "absent.pt"}, "the file of weights must exist"),
        ({"weights": "net.py"}, "must be a .safetensors or .pt file"),
        ({"weights": "opt.safetensors"}, "must hold the weights of this model"),
        ({"weights": "data.safetensors"}, "must be readable"),
    ],
)
def test_files_that_do_not_fit(own, change, words):
    folder, _ = own
    (folder / "data.safetensors").write_bytes(b"nonsense")
    assert words in refused(*call(folder, **change))
    assert str(folder.resolve()) not in sys.path


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--optimizer-state", "opt.pt"), "--optimizer must be given too"),
        (("--optimizer", "adamw"), "--learning-rate must be given too"),
        (("--optimizer", "adams", "--learning-rate", "0.1"), "did you mean"),
        (("--optimizer", "adamw", "--learning-rate", "0.1"), "must have taken a step"),
        (("--optimizer", "adamw", "--learning-rate", "0.1", "--optimizer-state", "net.safetensors"), "hold the state"),
        (("--optimizer", "adamw", "--learning-rate", "0.1", "--optimizer-state", "net.pt"), "must hold the state"),
    ],
)  # fmt: skip
def test_optimisers_that_do_not_fit(own, arguments, words):
    folder, _ = own
    files = [folder / one if one.endswith((".pt", ".safetensors")) else one for one in arguments]
    assert words in refused(*call(folder), *files)


def shaped(folder, name, inputs=(128, 16, 2), targets=(128, 16, 1)):
    rng = np.random.default_rng(0)
    np.savez(folder / name, inputs=rng.standard_normal(inputs), targets=rng.standard_normal(targets))
    return ("--model", f"{folder / 'net.py'}:build", "--weights", folder / "net.pt", "--data", folder / name)


@pytest.mark.parametrize(
    ("shapes", "words"),
    [
        ({"inputs": (128, 16, 3)}, "whose recurrent block takes 2 channels, but got inputs of shape (128, 16, 3)"),
        ({"targets": (128, 16, 2)}, "shaped like the model's answers (128, 16, 1), or like their last step (128, 1)"),
        ({"targets": (128, 16)}, "shaped like the model's answers (128, 16, 1)"),
        ({"inputs": (16, 128, 2), "targets": (128, 1)}, "which seem to have their steps first"),
        ({"inputs": (4, 128, 2), "targets": (4, 128, 1)}, "at least 16 sequences are needed"),
        ({"inputs": (128, 2)}, "inputs must have 3 dimensions"),
    ],
)
def test_sequences_that_are_not_the_model_s(own, tmp_path, shapes, words):
    (tmp_path / "net.py").write_text(BUILD, encoding="utf-8")
    (tmp_path / "net.pt").write_bytes((own[0] / "net.pt").read_bytes())
    assert words in refused(*shaped(tmp_path, "shaped.npz", **shapes))


def state(own, name):
    return torch.load(own[0] / name, weights_only=True)


def first(stored):
    """The first tensor of a state that is no number, and whose it is."""
    tables = stored["state"].values() if "state" in stored else [stored]
    return next((table, key) for table in tables for key, value in table.items() if value.dim())


def bent(stored, change):
    table, key = first(stored)
    table[key] = change(table[key])
    return stored


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda s: bent(s, lambda t: t[:, :-1]), "of shape (1, 3) instead of (1, 4)"),
        (lambda s: bent(s, lambda t: t * torch.nan), "4 NaN or infinite values in 'weights'"),
        (lambda s: bent(s, lambda t: t.to_sparse()), "must hold tensors and plain numbers only"),
        (lambda s: bent(s, lambda t: t + 1j), "of kind torch.complex64 instead of torch.float32"),
        (lambda s: bent(s, lambda t: t[:1, :1].expand(10**6, 10**6)), "of shape (1000000, 1000000) instead"),
        (lambda s: {k: v for k, v in s.items() if k != "block.bias_hh_l0"}, "no 'block.bias_hh_l0' among"),
        (lambda s: {**s, "other": torch.zeros(3)}, "'other', which the model has not"),
        (lambda s: {**s, 3: 5}, "3, which the model has not"),
        (lambda s: {**wrapped(s), "other": torch.zeros(3)}, "no 'weights' among"),
        (lambda s: {**wrapped(s), "weights": torch.zeros(3)}, "no 'bias' among"),
        (lambda s: [s], "must hold a state_dict, but got list"),
        (lambda s: {**s, "more": bytearray(10)}, "must hold tensors and plain numbers only"),
    ],
)
def test_weights_that_are_not_the_model_s(own, tmp_path, change, words):
    torch.save(change(state(own, "net.pt")), tmp_path / "bent.pt")
    assert words in refused(*call(own[0])[:2], "--weights", tmp_path / "bent.pt", "--data", own[0] / "data.npz")


def test_weights_that_were_cut_off_are_no_code(own, tmp_path):
    (tmp_path / "cut.pt").write_bytes((own[0] / "net.pt").read_bytes()[:500])
    words = refused(*call(own[0])[:2], "--weights", tmp_path / "cut.pt", "--data", own[0] / "data.npz")
    assert "cut.pt must be readable, but got BadZipFile: it is cut off" in words


def group(stored, **settings):
    stored["param_groups"][0].update(settings)
    return stored


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda s: bent(s, lambda t: t[:, :-1]), "'exp_avg' of 'weights' of shape (1, 3) instead of (1, 4)"),
        (lambda s: bent(s, lambda t: t * torch.nan), "4 NaN or infinite values in 'exp_avg' of 'weights'"),
        (lambda s: group(s, lr=float("nan")), "lr = nan"),
        (lambda s: group(s, betas=(0.9,)), "betas = (0.9,)"),
        (lambda s: group(s, betas="ab"), "could not convert"),
        (lambda s: group(s, amsgrad="yes"), "amsgrad = 'yes'"),
        (lambda s: group(s, params=[0]), "parameter group"),
        (lambda s: {"state": s["state"]}, "KeyError"),
        (lambda s: {**s, "state": 3}, "must hold the state of this AdamW"),
    ],
)
def test_states_that_are_not_the_optimiser_s(own, tmp_path, change, words):
    torch.save(change(state(own, "opt.pt")), tmp_path / "bent.pt")
    assert words in refused(*call(own[0], "pair"), "--optimizer-state", tmp_path / "bent.pt")


def wrapped(stored):
    """As Lightning stores the weights of a model that a module of its own holds."""
    return {f"model.{name}": value for name, value in stored.items()}


@pytest.mark.parametrize(
    "whole",
    [
        lambda weights, state: {"state_dict": weights, "optimizer": state, "epoch": 3},
        lambda weights, state: {"state_dict": wrapped(weights), "optimizer_states": [state], "lr_schedulers": []},
        lambda weights, state: {"model": {f"module._orig_mod.{k}": v for k, v in weights.items()}, "optimizer": state},
    ],
    ids=["plain", "Lightning", "compiled on several devices"],
)
def test_one_checkpoint_holds_weights_and_state(own, tmp_path, whole):
    torch.save(whole(state(own, "net.pt"), state(own, "opt.pt")), tmp_path / "last.ckpt")
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
def test_files_that_end_too_soon(own, tmp_path, name):
    content = (own[0] / name).read_bytes()
    (tmp_path / name).write_bytes(content[: len(content) // 2])
    given = [
        tmp_path / name if isinstance(one, Path) and one.name == name else one for one in call(own[0], weights=name)
    ]
    if name == "data.npz":
        given[3] = own[0] / "net.pt"
    assert f"{name} must" in refused(*given)


def test_an_older_file_of_weights_is_read_too(own, tmp_path):
    torch.save(state(own, "net.pt"), tmp_path / "old.pt", _use_new_zipfile_serialization=False)
    arguments = (*call(own[0])[:2], "--weights", tmp_path / "old.pt", "--data", own[0] / "data.npz", "--lags", "1,2")
    assert run(*arguments).exit_code == 0


def test_a_place_that_is_none():
    from learncast.windows.stored_model import built_model

    for place in ("net.py", "net:build", "absent.py:build", "net.py:not a name"):
        with pytest.raises(InvalidSpec, match=r"--model must be file.py:function"):
            built_model(place)


@pytest.fixture(scope="module")
def checkpoints(own, tmp_path_factory):
    """States of one training, stored with the optimiser's, and the model that was trained."""
    folder, rng = tmp_path_factory.mktemp("runs"), np.random.default_rng(1)
    with np.load(own[0] / "data.npz") as data:
        inputs, targets = data["inputs"], data["targets"]
    model = build_model("gru", inputs=2, outputs=1, hidden_size=4, seed=7)
    optimizer = build_optimizer("adamw", model, learning_rate=1e-2)
    for step in (2, 4, 10):
        train_on_batches(model, optimizer, inputs, targets, steps=2, batch=16, rng=rng)
        stored = {"model": model.state_dict(), "optimizer": optimizer.state_dict()}
        torch.save(stored, folder / f"run1_step{step}.pt")
    return folder, model, optimizer, (inputs, targets)


def evolving(own, pattern, *more, function="pair"):
    return (*call(own[0], function)[:2], *call(own[0])[4:], "--checkpoints", pattern, "--lags", "1,2,4", *more)


def test_checkpoints_are_followed_in_the_order_of_their_steps(own, checkpoints, tmp_path):
    folder, model, optimizer, data = checkpoints
    result = run(*evolving(own, folder / "*.pt"), "--json", "--out", tmp_path / "out")
    assert result.exit_code == 0, result.stderr
    found = json.loads(result.stdout)
    assert found["steps"] == [2, 4, 10]
    assert found["files"] == [f"run1_step{k}.pt" for k in (2, 4, 10)]
    assert found["counted"] == "training step"
    measurement = windows.Measurement(lags=[1, 2, 4])
    last = windows.window(model, *data, optimizer=optimizer, measurement=measurement)
    again = windows.Evolution.load(tmp_path / "out" / "evolution.nc")
    np.testing.assert_array_equal(again["envelope"].isel(step=-1), last["envelope"])
    np.testing.assert_array_equal(again["tail_index"].isel(step=-1), last["tail_index"])
    f = np.log(last["envelope"].isel(layer=0))
    assert found["envelope_exponent"][-1] == pytest.approx(-np.polyfit(np.log([1, 2, 4]), f, 1)[0])
    scales = np.sort(last["time_scale"].isel(layer=0))
    assert [found[f"time_scale_{q}"][-1] for q in (10, 50, 90)] == pytest.approx(scales[[0, 1, 2]])
    assert again.summary == found["summary"]
    assert "3 states" in repr(again)
    names = ["evolution.json", "evolution.nc", "evolution.png", "report.html", "study.toml"]
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == names


def test_an_evolution_leaves_the_model_as_it_was(checkpoints):
    folder, model, optimizer, data = checkpoints
    before = {name: value.clone() for name, value in model.state_dict().items()}
    steps = [state["step"].item() for state in optimizer.state.values()]
    measurement = windows.Measurement(lags=[1, 2, 4])
    found = windows.evolution(model, sorted(folder.iterdir())[:2], *data, optimizer=optimizer, measurement=measurement)
    assert found["step"].values.tolist() == [2, 10]
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    assert [state["step"].item() for state in optimizer.state.values()] == steps


@pytest.mark.parametrize(
    ("names", "order", "counted"),
    [
        (["e2-step=30", "e10-step=200"], [30, 200], "training step"),
        (["epoch_10", "epoch_9"], [9, 10], "epoch"),
        (["net.100", "net.20"], [20, 100], "number in the file's name"),
        (["run10b3", "run2b3", "last"], [1, 2, 3], "place among the files' names"),
    ],
)
def test_the_order_of_checkpoints_is_read_from_their_names(names, order, counted):
    paths, numbers, told = in_order([Path(f"{name}.pt") for name in names])
    assert (numbers, told) == (order, counted)
    expected = {"place among the files' names": ["last", "run2b3", "run10b3"], "epoch": ["epoch_9", "epoch_10"]}
    if told in expected:
        assert [path.stem for path in paths] == expected[told]


def test_wrong_checkpoints_are_refused_in_a_sentence(own, checkpoints, tmp_path):
    folder, model, _, _ = checkpoints
    assert "two files or more, but got 0 for" in refused(*evolving(own, tmp_path / "*.pt"))
    whole = sorted(folder.iterdir())[0].read_bytes()
    (tmp_path / "step_1.pt").write_bytes(whole)
    (tmp_path / "step_2.pt").write_bytes(whole[: len(whole) // 2])
    assert "step_2.pt must" in refused(*evolving(own, tmp_path / "step_*.pt"))
    torch.save(model.state_dict(), tmp_path / "step_2.pt")
    text = refused(*evolving(own, tmp_path / "step_*.pt"))
    assert "step_2.pt must hold the state of this AdamW, under 'optimizer', but got none among" in text
    other = build_model("gru", inputs=2, outputs=1, hidden_size=5, seed=7)
    torch.save(other.state_dict(), tmp_path / "step_2.pt")
    assert "step_2.pt must hold the weights of this model" in refused(*evolving(own, tmp_path / "step_*.pt"))
    fresh = torch.optim.AdamW(model.parameters(), lr=1e-2)
    torch.save({"model": model.state_dict(), "optimizer": fresh.state_dict()}, tmp_path / "step_2.pt")
    assert "before its first step" in refused(*evolving(own, tmp_path / "step_*.pt"))
    more = ("--weights", own[0] / "net.pt")
    assert "without --weights" in refused(*evolving(own, folder / "*.pt", *more))
    more = ("--optimizer-state", own[0] / "opt.pt")
    assert "without --optimizer-state" in refused(*evolving(own, folder / "*.pt", *more))


def test_every_checkpoint_is_checked_before_the_first_is_diagnosed(checkpoints, tmp_path):
    folder, model, optimizer, data = checkpoints
    before = {name: value.clone() for name, value in model.state_dict().items()}
    (tmp_path / "step_1.pt").write_bytes(next(folder.iterdir()).read_bytes())
    other = build_model("gru", inputs=2, outputs=1, hidden_size=5, seed=7)
    torch.save(other.state_dict(), tmp_path / "step_2.pt")
    shares = []
    with pytest.raises(InvalidSpec, match=r"step_2.pt must hold the weights of this model"):
        windows.evolution(model, tmp_path / "*.pt", *data, optimizer=optimizer, progress=shares.append)
    assert max(shares, default=0.0) == 0.0
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())


def test_a_folder_of_checkpoints_is_told_from_a_pattern(own, checkpoints):
    words = refused(*evolving(own, checkpoints[0]))
    assert f"but got a folder, '{checkpoints[0]}'" in words
    assert f"as '{checkpoints[0]}/*'" in words


def test_an_evolution_says_what_was_asked(own, checkpoints, tmp_path):
    """How many sequences, how far was looked and that no optimiser was given, as `window` says of one state."""
    for path in checkpoints[0].iterdir():
        torch.save(torch.load(path, weights_only=True)["model"], tmp_path / path.name)
    found = run(*evolving(own, tmp_path / "*.pt", "--json", function="build"))
    assert found.exit_code == 0, found.stderr
    values = json.loads(found.stdout)
    assert (values["sequences"], values["lags"], values["optimizer"]) == (128, [1, 2, 4], "none")
    assert ", each with 128 sequences, the window" in values["summary"]
    assert ("(4 is the longest lag measured)" in values["summary"]) == (4 in values["reach"])
    assert values["summary"].endswith("; without an optimiser, every base rate is 1.")
    shown = run(*evolving(own, tmp_path / "*.pt", function="build")).stdout
    row = next(line for line in shown.splitlines() if line.split()[:1] == ["10"])
    assert row.split()[1] == f"{values['reach'][-1]:.0f}"


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ([16, 16, 16], "stays at 16 steps"),
        ([2, 4, 16], "goes from 2 to 16 steps"),
        ([16, 8, 8], "goes from 16 to 8 steps"),
        ([16, 8, 16], "lies between 8 and 16 and ends at 16 steps"),
        ([np.nan, 8, 9], "goes from 8 to 9 steps, unknown in 1"),
        ([3, np.inf, np.inf], "goes from 3 to no decay"),
        ([np.inf, np.inf], "shows no decay"),
        ([np.nan, np.nan], "is unknown"),
    ],
)
def test_the_course_of_a_quantity_in_words(values, words):
    assert course(xr.DataArray(np.array(values, dtype=float)), "steps") == words
