"""The study file: what it builds, which errors name file and key, and what is written back."""

import gc
import tomllib
from pathlib import Path

import numpy as np
import pytest

import learncast as lc
from learncast.report.plan import plan_report
from learncast.study import AdviceStudy, Study, WindowStudy, new_study, to_toml
from learncast.tasks import covariance

ROOT = Path(__file__).parents[3]
TRAINING = "[training]\nlearning_rate = 1e-3\n"
TARGET = '[target]\nfamily = "integration"\nsteps = 10\n'


@pytest.fixture
def load(tmp_path):
    """Write a study to a file and read it."""

    def loaded(text):
        path = tmp_path / "study.toml"
        path.write_text(text, encoding="utf-8")
        return Study.load(path)

    return loaded


def refusal(call):
    """The error of a call, whose message is one line."""
    with pytest.raises(lc.InvalidSpec) as caught:
        call()
    assert "\n" not in str(caught.value)
    return caught.value


# --- what is built ---------------------------------------------------------------------------------------------------


def test_defaults_are_those_of_the_paper(load):
    study = load(TRAINING + '[target]\nfamily = "integration"\n')
    assert (study.name, study.learning_rate, study.goal, study.max_stages) == ("study", 1e-3, lc.Accuracy(0.99), 2)
    assert study.target.name == "target"
    assert study.target.hash == lc.tasks.integration(50).hash
    assert study.network.hash == lc.LinearRNN.aligned(hidden_size=128, recurrence=0.96, initial=0.01).hash
    assert study.candidates == ()


def test_every_key_sets_its_object(load):
    study = load(
        'name = "mine"\n'
        "[network]\nhidden_size = 5\nrecurrence = [0.9, 0.8]\ninitial = [0.1, 0.2]\noutput_initial = 0.3\n"
        "[training]\nlearning_rate = 2\naccuracy = 0.5\nmax_stages = 1\n"
        '[target]\nname = "goal"\nfamily = "leaky-integration"\nsteps = 6\ntimescale = [3, 4.5]\ncorrelation = -0.5\n'
        'noise_strength = 2.0\ngain = 0.7\nmixing = [[2.0, 0.0], [0.0, 1.0]]\ntargets = "every-step"\n'
        '[[candidates]]\nfamily = "integration"\nsteps = 6\ntarget_strength = [1, 2]\ninput_strength = 0.5\n'
        '[[candidates]]\nname = "second"\nfamily = "integration"\nsteps = 6\ntarget_strength = [1, 3]\n'
    )
    goal = lc.tasks.leaky_integration(
        6, [3.0, 4.5], -0.5, 2.0, 0.7, mixing=np.diag([2.0, 1.0]), targets="every_step", name="goal"
    )
    assert study.target.hash == goal.hash
    assert (study.learning_rate, study.goal, study.max_stages) == (2.0, lc.Accuracy(0.5), 1)
    wanted = lc.LinearRNN.aligned(
        hidden_size=5, recurrence=[0.9, 0.8], initial=[0.1, 0.2], output_initial=0.3, task=goal
    )
    assert study.network.hash == wanted.hash
    assert [c.name for c in study.candidates] == ["candidate 1", "second"]
    assert study.candidates[0].hash == lc.tasks.integration(6, 0.5, [1.0, 2.0]).hash
    assert study.task("second") is study.candidates[1]
    error = refusal(lambda: study.task("secnd"))
    assert error.field == "task"
    assert "'second'" in str(error)


@pytest.fixture
def recordings(tmp_path):
    """Write valid and damaged files next to the study."""
    rng = np.random.default_rng(0)
    inputs = rng.normal(size=(60, 4, 2))
    targets = inputs.sum(axis=1)
    white = np.eye(8).reshape(4, 2, 4, 2)

    def save(name, **arrays):
        np.savez(tmp_path / name, **arrays)

    save("trials.npz", inputs=inputs, targets=targets)
    save("every.npz", inputs=inputs, targets=np.cumsum(inputs, axis=1))
    save("statistics.npz", input_covariance=white, cross_covariance=np.ones((4, 2, 2)))
    save("whole.npz", input_covariance=white, cross_covariance=np.ones((4, 2, 1)), target_covariance=[[9.0]])
    spoiled = inputs.copy()
    spoiled[3, 2, 1] = np.nan
    save("nan.npz", inputs=spoiled, targets=targets)
    save("one.npz", inputs=inputs[:1], targets=targets[:1])
    save("steps.npz", inputs=inputs, targets=rng.normal(size=(60, 3, 2)))
    save("pairs.npz", inputs=inputs, targets=targets[:-1])
    save("negative.npz", input_covariance=-white, cross_covariance=np.ones((4, 2, 2)))
    save("half.npz", inputs=inputs)
    save("empty.npz")
    save("words.npz", inputs=np.full((5, 3, 2), "a"), targets=np.ones((5, 2)))
    save("objects.npz", inputs=np.array([1, None], dtype=object), targets=targets)
    whole = (tmp_path / "trials.npz").read_bytes()
    (tmp_path / "cut.npz").write_bytes(whole[: len(whole) // 2])
    flipped = bytearray(whole)
    flipped[2000:2100] = bytes(100)
    (tmp_path / "flipped.npz").write_bytes(bytes(flipped))
    (tmp_path / "text.npz").write_text("not an archive")
    (tmp_path / "nothing.npz").write_bytes(b"")
    np.save(tmp_path / "array.npy", inputs)
    (tmp_path / "array.npy").rename(tmp_path / "single.npz")
    (tmp_path / "table.txt").write_text("1,2,3")
    return inputs, targets


def test_recorded_trials_become_a_task(load, recordings):
    inputs, targets = recordings
    study = load(TRAINING + '[target]\ndata = "trials.npz"\n[[candidates]]\ndata = "every.npz"\ncentre = true\n')
    assert study.target.hash == lc.Task.from_samples(inputs, targets).hash
    assert study.target.name == "trials"
    [candidate] = study.candidates
    assert candidate.hash == lc.Task.from_samples(inputs, np.cumsum(inputs, axis=1), centre=True).hash
    assert (candidate.name, candidate.targets) == ("every", "every_step")


def test_statistics_become_a_task(load, recordings):
    study = load(TRAINING + '[target]\nname = "given"\ndata = "statistics.npz"\n')
    assert study.target.name == "given"
    assert (study.target.steps, study.target.inputs, study.target.outputs) == (4, 2, 2)
    assert load(TRAINING + '[target]\ndata = "whole.npz"\n').target.target_power == 9.0


WEIGHTS = {
    "input_weights": np.full((3, 1), 0.1),
    "recurrent_weights": 0.5 * np.eye(3),
    "output_weights": np.full((1, 3), 0.2),
}


@pytest.mark.parametrize("suffix", ["npz", "safetensors"])
def test_weights_come_from_a_file(load, tmp_path, suffix):
    if suffix == "npz":
        np.savez(tmp_path / "net.npz", **WEIGHTS)
    else:
        pytest.importorskip("safetensors.numpy").save_file(WEIGHTS, tmp_path / "net.safetensors")
    study = load(f'[network]\nweights = "net.{suffix}"\n' + TRAINING + TARGET)
    assert study.network.hash == lc.LinearRNN(*WEIGHTS.values()).hash


# --- errors ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["gone.toml", "."])
def test_a_missing_file_and_a_folder_raise(tmp_path, name):
    assert str(tmp_path / name) in str(refusal(lambda: Study.load(tmp_path / name)))


@pytest.mark.parametrize("content", [b"= 3", b"[training", b"\xff\xfe\x00", b'name = "a'])
def test_a_file_that_is_not_toml_raises(tmp_path, content):
    (tmp_path / "study.toml").write_bytes(content)
    assert "study.toml" in str(refusal(lambda: Study.load(tmp_path / "study.toml")))


#: Studies with the key that is wrong, and what the message must contain besides.
WRONG_KEYS = {
    "empty file": ("", None, "[target]"),
    "no target": (TRAINING, None, "[target]"),
    "negative learning rate": ("[training]\nlearning_rate = -1\n" + TARGET, "training.learning_rate", "-1"),
    "learning rate is text": ('[training]\nlearning_rate = "fast"\n' + TARGET, "training.learning_rate", "'fast'"),
    "infinite learning rate": ("[training]\nlearning_rate = inf\n" + TARGET, "training.learning_rate", "inf"),
    "learning rate is nan": ("[training]\nlearning_rate = nan\n" + TARGET, "training.learning_rate", "nan"),
    "accuracy above one": (TRAINING + "accuracy = 2\n" + TARGET, "training.accuracy", "2"),
    "nine stages": (TRAINING + "max_stages = 9\n" + TARGET, "training.max_stages", "9"),
    "unknown key at the top": ('naem = "x"\n' + TRAINING + TARGET, "naem", "'name'"),
    "unknown table": (TRAINING + TARGET + "[candidate]\n", "candidate", "'candidates'"),
    "unknown training key": (TRAINING + "acuracy = 0.9\n" + TARGET, "training.acuracy", "'accuracy'"),
    "misspelt required key": (
        "[training]\nlearning_rte = 1e-3\n" + TARGET,
        "training.learning_rte",
        "'learning_rate'",
    ),
    "unknown network key": ("[network]\nhiden_size = 3\n" + TRAINING + TARGET, "network.hiden_size", "'hidden_size'"),
    "unknown target key": (TRAINING + TARGET + "target_strenght = 2\n", "target.target_strenght", "'target_strength'"),
    "key of another family": (TRAINING + TARGET + "timescale = 2\n", "target.timescale", "input_strength"),
    "unknown candidate key": (
        TRAINING + TARGET + '[[candidates]]\nfamily = "integration"\ninput_strenth = 2\n',
        "candidates.0.input_strenth",
        "'input_strength'",
    ),
    "unknown stage key": (
        TRAINING + '[[sequence]]\nfamily = "hierarchy"\ntrain_stps = 2\n',
        "sequence.0.train_stps",
        "'train_steps'",
    ),
    "data and family": (TRAINING + TARGET + 'data = "trials.npz"\n', "target.family", ""),
    "unknown data key": (TRAINING + '[target]\ndata = "trials.npz"\ncenter = true\n', "target.center", "'centre'"),
    "misspelt family": (TRAINING + '[target]\nfamily = "integraton"\n', "target", "'integration'"),
    "no family": (TRAINING + "[target]\nsteps = 5\n", "target", "leaky_integration"),
    "family is a list": (TRAINING + '[target]\nfamily = ["integration"]\n', "target", "leaky_integration"),
    "target is a number": ("target = 3\n" + TRAINING, "target", "table"),
    "candidates are a number": ("candidates = 3\n" + TRAINING + TARGET, "candidates", "3"),
    "a candidate is a number": ("candidates = [3]\n" + TRAINING + TARGET, "candidates.0", "table"),
    "network is text": ('network = "x"\n' + TRAINING + TARGET, "network", "table"),
    "unknown kind of network": ('[network]\nkind = "transformer"\n' + TRAINING + TARGET, "network", "transformer"),
    "seed of an aligned start": ("[network]\nseed = 1\n" + TRAINING + TARGET, "network", "seed"),
    "random start with an output strength": (
        '[network]\ninitial = "random"\noutput_initial = 1\n' + TRAINING + TARGET,
        "network",
        "output_initial",
    ),
    "random recurrence of an aligned start": (
        '[network]\nrecurrence = "random"\n' + TRAINING + TARGET,
        "network",
        "recurrence",
    ),
    "no steps": (TRAINING + '[target]\nfamily = "integration"\nsteps = 0\n', "target.steps", "0"),
    "half a step": (TRAINING + '[target]\nfamily = "integration"\nsteps = 2.5\n', "target.steps", "2.5"),
    "strength is text": (TRAINING + TARGET + 'input_strength = "a"\n', "target.input_strength", "'a'"),
    "unknown time of targets": (TRAINING + TARGET + 'targets = "sometimes"\n', "target.targets", "every_step"),
    "equal names": (
        TRAINING + TARGET + 'name = "a"\n[[candidates]]\nname = "a"\nfamily = "integration"\n',
        None,
        "'a'",
    ),
    "rule of the target": (TRAINING + TARGET + "least_accuracy = 0.5\n", None, "least_accuracy"),
    "rule of a stage": (TRAINING + '[[sequence]]\nfamily = "hierarchy"\ncost = 2\n', None, "cost"),
    "candidates without a target": (
        TRAINING + '[[sequence]]\nfamily = "hierarchy"\n[[candidates]]\nfamily = "integration"\n',
        None,
        "[target]",
    ),
}


@pytest.mark.parametrize("case", WRONG_KEYS)
def test_a_wrong_key_is_named(load, case):
    text, field, token = WRONG_KEYS[case]
    error = refusal(lambda: load(text))
    assert error.field == field
    assert "study.toml" in str(error)
    assert token in str(error)


#: Studies whose keys are valid but whose objects cannot be built, with the table and what the message must contain.
UNUSABLE = {
    "negative variance": (TRAINING + TARGET + "input_strength = -1\n", "[target]", "input_strength"),
    "no strengths": (TRAINING + TARGET + "input_strength = []\n", "[target]", ""),
    "strengths that do not match": (
        TRAINING + TARGET + "target_strength = [1, 2]\ninput_strength = [1, 2, 3]\n",
        "[target]",
        "target_strength",
    ),
    "ragged mixing": (TRAINING + TARGET + "mixing = [[1, 2], [3]]\n", "[target]", "mixing"),
    "too few units": (
        "[network]\nhidden_size = 1\n" + TRAINING + TARGET + "target_strength = [1, 2]\n",
        "[network]",
        "hidden_size",
    ),
    "eigenvalues that do not match": (
        "[network]\nrecurrence = [1, 2, 3]\n" + TRAINING + TARGET,
        "[network]",
        "recurrence",
    ),
    "missing data": (TRAINING + '[target]\ndata = "gone.npz"\n', "[target]", "gone.npz"),
    "data of another format": (TRAINING + '[target]\ndata = "table.txt"\n', "[target]", "table.txt"),
    "NaN in data": (TRAINING + '[target]\ndata = "nan.npz"\n', "[target]", "(3, 2, 1)"),
    "one trial": (TRAINING + '[target]\ndata = "one.npz"\n', "[target]", "1"),
    "mismatched steps": (TRAINING + '[target]\ndata = "steps.npz"\n', "[target]", "3"),
    "mismatched trials": (TRAINING + '[target]\ndata = "pairs.npz"\n', "[target]", "59"),
    "impossible covariance": (TRAINING + '[target]\ndata = "negative.npz"\n', "[target]", "input_covariance"),
    "impossible candidate": (
        TRAINING + '[target]\ndata = "trials.npz"\n[[candidates]]\ndata = "negative.npz"\n',
        "[[candidates]] number 1",
        "input_covariance",
    ),
    "missing arrays": (TRAINING + '[target]\ndata = "half.npz"\n', "[target]", "half.npz"),
    "no arrays": (TRAINING + '[target]\ndata = "empty.npz"\n', "[target]", "empty.npz"),
    "text for data": (TRAINING + '[target]\ndata = "words.npz"\n', "[target]", "inputs"),
    "objects for data": (TRAINING + '[target]\ndata = "objects.npz"\n', "[target]", "objects.npz"),
    "damaged data, cut short": (TRAINING + '[target]\ndata = "cut.npz"\n', "[target]", "cut.npz"),
    "damaged data, overwritten": (TRAINING + '[target]\ndata = "flipped.npz"\n', "[target]", "flipped.npz"),
    "damaged data, text": (TRAINING + '[target]\ndata = "text.npz"\n', "[target]", "text.npz"),
    "damaged data, nothing": (TRAINING + '[target]\ndata = "nothing.npz"\n', "[target]", "nothing.npz"),
    "a single array": (TRAINING + '[target]\ndata = "single.npz"\n', "[target]", "single.npz"),
    "missing weights": ('[network]\nweights = "gone.npz"\n' + TRAINING + TARGET, "[network]", "gone.npz"),
    "weights that are data": (
        '[network]\nweights = "trials.npz"\n' + TRAINING + TARGET,
        "[network]",
        "recurrent_weights",
    ),
    "unknown sensory task": (
        TRAINING + '[target]\nfamily = "sensory"\ntask = "leeky"\n',
        "[target]",
        "'leaky'",
    ),
    "unknown parameter of a sensory task": (
        TRAINING + '[target]\nfamily = "sensory"\ntask = "leaky"\nparameters = { decai = 0.5 }\n',
        "[target]",
        "'decay'",
    ),
}


@pytest.mark.parametrize("case", UNUSABLE)
def test_an_object_that_cannot_be_built_is_located_in_the_file(load, recordings, case):
    text, table, token = UNUSABLE[case]
    message = str(refusal(lambda: load(text)))
    assert f"study.toml, {table}: " in message
    assert token in message
    if "damaged" in case:
        gc.collect()  # a file left open is reported when it is collected: let that happen in this test


@pytest.mark.parametrize(
    ("arrays", "token"),
    [
        ({"input_weights": WEIGHTS["input_weights"]}, "recurrent_weights"),
        ({**WEIGHTS, "input_weights": np.ones((4, 1))}, "(4, 1)"),
        ({**WEIGHTS, "output_weights": np.full((1, 3), np.nan)}, "output_weights"),
    ],
    ids=["missing", "mismatched", "nan"],
)
def test_bad_weights_raise(load, tmp_path, arrays, token):
    np.savez(tmp_path / "net.npz", **arrays)
    message = str(refusal(lambda: load('[network]\nweights = "net.npz"\n' + TRAINING + TARGET)))
    assert "study.toml, [network]: " in message
    assert token in message


@pytest.mark.parametrize("content", [b"", b"not safetensors at all", b"\x08\x00\x00\x00\x00\x00\x00\x00{garbage"])
def test_damaged_safetensors_raise(load, tmp_path, content):
    pytest.importorskip("safetensors")
    (tmp_path / "net.safetensors").write_bytes(content)
    error = refusal(lambda: load('[network]\nweights = "net.safetensors"\n' + TRAINING + TARGET))
    assert "net.safetensors" in str(error)


def test_weights_in_half_precision_are_read_or_raise(load, tmp_path):
    torch = pytest.importorskip("torch")
    save_file = pytest.importorskip("safetensors.torch").save_file
    save_file({k: torch.tensor(v, dtype=torch.bfloat16) for k, v in WEIGHTS.items()}, tmp_path / "net.safetensors")
    text = '[network]\nweights = "net.safetensors"\n' + TRAINING + TARGET
    try:
        study = load(text)
    except lc.InvalidSpec:
        assert "net.safetensors" in str(refusal(lambda: load(text)))
        return
    # bfloat16 has 8 significant bits
    np.testing.assert_allclose(study.network.input_weights, WEIGHTS["input_weights"], rtol=2**-8)


@pytest.mark.parametrize(
    ("text", "key"),
    [
        (TRAINING + TARGET + '[[candidates]]\nfamily = "integration"\ntarget_strength = [1, 2]\n', "candidate"),
        ('[network]\nweights = "wide.npz"\n' + TRAINING + TARGET, "network"),
        ("[network]\nrecurrence = 1e40\n" + TRAINING + TARGET, "network"),
    ],
    ids=["candidate with other channels", "weights with other channels", "recurrence that overflows"],
)
def test_parts_that_do_not_match_raise_with_file_and_key(load, tmp_path, text, key):
    np.savez(tmp_path / "wide.npz", **{**WEIGHTS, "input_weights": np.ones((3, 2))})
    message = str(refusal(lambda: plan_report(load(text))))
    assert "study.toml" in message
    assert key in message


@pytest.mark.parametrize(
    "text",
    [
        "[network]\nhidden_size = 10000000\n" + TRAINING + TARGET,
        TRAINING + '[target]\nfamily = "integration"\nsteps = 10000000\n',
    ],
    ids=["hidden units", "steps"],
)
def test_a_study_too_large_for_memory_raises(load, text):
    assert refusal(lambda: load(text)).field == "most_bytes"


def test_a_sequence_has_no_target(load):
    study = load(TRAINING + '[network]\nkind = "two-layer"\n[[sequence]]\nfamily = "hierarchy"\n')
    assert refusal(lambda: study.target).field == "target"


# --- what is written back --------------------------------------------------------------------------------------------

ROUND_TRIPS = {
    "defaults": TRAINING + 'max_stages = 1\n[target]\nfamily = "integration"\n',
    "everything": (
        'name = "quotes \\" and \\\\ and\\nlines"\n'
        "[network]\nhidden_size = 5\nrecurrence = [0.9, 0.8]\ninitial = [0.1, 0.2]\noutput_initial = 0.3\n"
        "[training]\nlearning_rate = 1e-5\naccuracy = 0.5\n"
        '[target]\nname = "ziel äöü ☃"\nfamily = "leaky-integration"\nsteps = 6\ntimescale = [3, 4.5]\n'
        'correlation = -0.5\nmixing = [[2.0, 0.0], [0.0, 1.0]]\ntargets = "every-step"\n'
        '[[candidates]]\nfamily = "integration"\nsteps = 6\ntarget_strength = [1, 2]\ntargets = "every-step"\n'
        '[[candidates]]\nname = "b"\nfamily = "integration"\nsteps = 6\ntarget_strength = [3, 2]\n'
    ),
    "recorded": "[network]\nhidden_size = 3\ninitial = 0.3\n"
    + TRAINING
    + 'accuracy = 0.5\n[target]\ndata = "trials.npz"\n[[candidates]]\nname = "b"\ndata = "statistics.npz"\n',
}


@pytest.mark.slow_cases("recorded")
@pytest.mark.parametrize("case", ROUND_TRIPS)
def test_the_resolved_study_gives_the_same_answers(load, recordings, tmp_path, case):
    study = load(ROUND_TRIPS[case])
    again = Study.from_dict(tomllib.loads(study.resolved()), folder=tmp_path, source="resolved")
    assert again.resolved() == study.resolved()
    assert plan_report(again).json() == plan_report(study).json()


def test_the_resolved_study_names_every_default(load):
    raw = tomllib.loads(load(TRAINING + '[target]\nfamily = "integration"\n').resolved())
    network = {"kind": "linear-rnn", "hidden_size": 128, "recurrence": 0.96, "initial": 0.01, "activation": "linear"}
    assert raw["network"] == network
    training = {"learning_rate": 1e-3, "shuffle": False, "accuracy": 0.99, "max_stages": 2, "switch_cost": 0.0}
    training |= {"optimizer": "gd", "loss_function": "half_mse"}
    assert raw["training"] == training
    wanted = {"family": "integration", "steps": 50, "targets": "end", "input_strength": 1.0, "target_strength": 1.0}
    assert raw["target"].items() >= wanted.items()


@pytest.mark.parametrize(
    "text",
    [
        'quotes " and \\ backslashes',
        "line\nbreak and\ttab",
        "carriage\rreturn",
        "bell \x07, delete \x7f, unit \x1f",
        "äöü ☃ 🦉",
        "",
        "# no comment, = no value, [no table]",
    ],
)
def test_strings_survive_the_writer(text):
    assert tomllib.loads(to_toml({"name": text})) == {"name": text}


@pytest.mark.parametrize(
    "value",
    [1, -3, 0.1, 1e-300, 1e300, 5e-324, -0.0, float("inf"), -float("inf"), True, False, [], [1, 2], [[0.5], []]],
)
def test_values_survive_the_writer(value):
    [back] = tomllib.loads(to_toml({"value": value})).values()
    assert back == value
    assert type(back) is type(value)


def test_tables_survive_the_writer():
    tables = {
        "a": 1,
        "empty": [],
        "table": {"x": 1.5, "y": "z"},
        "several": [{"k": 1, "list": [1.0]}, {"k": 2}],
        "last": {"flag": True},
    }
    assert tomllib.loads(to_toml(tables)) == tables


def test_covariances_keep_their_structure(load, recordings):
    study = load(TRAINING + TARGET + 'target_strength = [1, 2]\n[[candidates]]\ndata = "statistics.npz"\n')
    assert isinstance(study.target.input_covariance, covariance.Kronecker)
    assert isinstance(study.candidates[0].input_covariance, covariance.Dense)


COMMANDS = {"plan": Study, "window": WindowStudy, "advise": AdviceStudy}
EXAMPLES = {"plan": "two_integration_tasks", "window": "multi_lag_window", "advise": "decision_network"}


@pytest.mark.parametrize(("asked", "meant"), [(a, m) for a in COMMANDS for m in EXAMPLES if a != m])
def test_a_study_for_another_command_names_it(asked, meant):
    error = refusal(lambda: COMMANDS[asked].load(ROOT / "examples" / f"{EXAMPLES[meant]}.toml"))
    assert f"`learncast {meant} " in str(error)


@pytest.mark.parametrize("asked", COMMANDS)
def test_a_sweep_names_its_command(asked, tmp_path):
    path = new_study("sweep", tmp_path / "sweep.toml")[0]
    error = refusal(lambda: COMMANDS[asked].load(path))
    assert error.field == "sweep"
    assert "`learncast sweep run " in str(error)


def test_a_file_with_only_a_model_is_a_window(tmp_path):
    path = tmp_path / "window.toml"
    path.write_text('[model]\nkind = "gru"\n')
    assert "`learncast window " in str(refusal(lambda: Study.load(path)))


def test_a_learning_rate_that_is_not_given_is_chosen_and_written_into_the_study(load):
    study = load(TARGET)
    again = load(study.resolved())
    assert study.learning_rate == again.learning_rate == lc.forecast(study.target, study.network).learning_rate
    assert [choice.setting for choice in study.chosen] == ["learning rate"]
    assert again.chosen == ()
