"""The command line: answers on stdout, atomic files, exit codes, and no traceback for bad input."""

import errno
import gc
import html.parser
import json
import os
import re
import shutil
import subprocess
import sys
import time
import tomllib
import urllib.parse
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
import xarray as xr
from matplotlib.figure import Figure
from typer.testing import CliRunner

import learncast
from learncast import display
from learncast.cli import app
from learncast.cli_delivery import Delivery
from learncast.report import report
from learncast.theory import assumptions

EXAMPLE = Path(__file__).parents[2] / "examples" / "two_integration_tasks.toml"
TRAINING = "[training]\nlearning_rate = 1e-3\n"
NETWORK = "[network]\nhidden_size = 4\n"
TARGET = '[target]\nname = "goal"\nfamily = "integration"\n'
STRONGER = '[[candidates]]\nname = "stronger"\nfamily = "integration"\ntarget_strength = 1.5\n'
PHASE = ("--vary", "target_strength", "--values", "0.5,1.5", "--accuracies", "0.1,0.5,0.9")


@pytest.fixture
def study(tmp_path):
    """Write a study file and return its path as text."""

    def written(text=NETWORK + TRAINING + TARGET + STRONGER, name="study.toml"):
        path = tmp_path / "in" / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(text, encoding="utf-8")
        return str(path)

    return written


def run(*arguments):
    """Run a command in a wide terminal; exceptions that the user would see as a traceback are raised."""
    result = CliRunner(env={"COLUMNS": "200", "TERM": "dumb"}).invoke(app, [str(a) for a in arguments])
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result


def answer(*arguments):
    """The JSON that a command prints, and nothing else."""
    result = run(*arguments, "--json")
    assert result.exit_code == 0, result.stderr
    assert result.stderr == ""
    return json.loads(result.stdout)


def refused(*arguments):
    """The one line on stderr of a command that exits with 2."""
    result = run(*arguments)
    assert result.exit_code == 2, result.stdout
    assert result.stdout == ""
    assert result.stderr.startswith("learncast: ")
    assert result.stderr.count("\n") == 1
    return result.stderr


def everything(folder):
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*"))


# --- answers as JSON -------------------------------------------------------------------------------------------------

VALIDITY = {"assumption", "measured", "allowed", "holds"}


def assert_validity(rows):
    assert {row["assumption"] for row in rows} <= assumptions.ASSUMPTIONS.keys()
    assert len(rows) >= 6
    for row in rows:
        assert row.keys() >= VALIDITY
        assert row["holds"] is (row["measured"] <= row["allowed"])


def test_forecast_keys(study):
    found = answer("forecast", study())
    assert found.keys() >= {"task", "learning_rate", "accuracy", "flow_steps", "descent_steps", "modes", "validity"}
    assert "trajectory" not in found
    [mode] = found["modes"]
    numbers = {"mode", "recurrence", "weighted_cross", "weighted_input", "optimum", "initial"}
    assert mode.keys() >= numbers | {"flow_steps", "descent_steps", "status"}
    assert (found["task"], found["learning_rate"], found["accuracy"]) == ("goal", 1e-3, 0.99)
    assert (mode["mode"], mode["status"]) == (0, "ok")
    assert mode["optimum"] == pytest.approx(mode["weighted_cross"] / mode["weighted_input"], rel=1e-12)
    assert isinstance(found["descent_steps"], int)
    assert_validity(found["validity"])


def test_forecast_trajectory_keys(study):
    found = answer("forecast", study(), "--times", "0,100,inf")["trajectory"]
    assert found.keys() >= {"time", "strength", "loss"}
    assert found["time"] == [0.0, 100.0, "inf"]
    assert len(found["strength"]) == 1  # modes first
    assert len(found["strength"][0]) == len(found["loss"]) == 3
    assert found["loss"] == sorted(found["loss"], reverse=True)


def test_forecast_of_a_candidate(study):
    found = answer("forecast", study(), "--task", "stronger")
    assert found["task"] == "stronger"
    assert found["flow_steps"] < answer("forecast", study())["flow_steps"]


def test_plan_keys(study):
    weaker = '[[candidates]]\nname = "weaker"\nfamily = "integration"\ntarget_strength = 0.5\n'
    found = answer("plan", study(NETWORK + TRAINING + TARGET + weaker + STRONGER))
    assert found.keys() >= {"direct", "candidates", "best", "validity"}
    assert found["direct"].keys() >= {"flow_steps", "descent_steps"}
    assert [c["task"] for c in found["candidates"]] == ["stronger", "weaker"]
    numbers = {"task", "best_accuracy", "flow_steps", "descent_steps", "saving", "saving_ratio", "why"}
    for candidate in found["candidates"]:
        assert candidate.keys() >= numbers
        assert candidate["why"].keys() >= {"sentence"}
    assert found["candidates"][0]["why"].keys() >= {"initial_scale", "cross_ratio", "closeness"}
    best = found["best"]
    assert best.keys() >= {"stages", "flow_steps", "descent_steps", "saving", "saving_ratio"}
    for stage in best["stages"]:
        assert stage.keys() >= {"task", "accuracy", "flow_steps", "descent_steps"}
    assert [stage["task"] for stage in best["stages"]] == ["stronger", "goal"]
    assert best["flow_steps"] == pytest.approx(sum(stage["flow_steps"] for stage in best["stages"]))
    assert best["descent_steps"] == sum(stage["descent_steps"] for stage in best["stages"])
    assert best["saving"] == found["direct"]["descent_steps"] - best["descent_steps"]
    assert_validity(found["validity"])


def test_phase_keys(study):
    found = answer("phase", study(), *PHASE)
    assert found.keys() >= {"vary", "values", "accuracies", "direct_steps", "speedup_steps", "total_steps"}
    assert (found["vary"], found["values"], found["accuracies"]) == ("target_strength", [0.5, 1.5], [0.1, 0.5, 0.9])
    for key in ("speedup_steps", "total_steps"):
        assert np.shape(found[key]) == (2, 3)
    np.testing.assert_allclose(found["speedup_steps"], found["direct_steps"] - np.array(found["total_steps"]))


def test_ranges_are_first_last_and_count(study):
    found = answer("phase", study(), "--vary", "target_strength", "--values", "0.1:2.0:20", "--accuracies", "0.5:0.5:1")
    assert len(found["values"]) == 20
    assert (found["values"][0], found["values"][-1]) == (0.1, 2.0)
    np.testing.assert_allclose(np.diff(found["values"]), 0.1)
    assert found["accuracies"] == [0.5]


def test_the_example_study():
    found = answer("plan", EXAMPLE)
    assert found["direct"]["flow_steps"] == pytest.approx(329.98, abs=0.005)
    assert found["direct"]["descent_steps"] == 331
    assert found["best"]["descent_steps"] == 168
    assert found["best_by_flow"]["total"] == pytest.approx(165.95, abs=0.005)
    # The first step within the tolerance of the target, whose edge is at 0.66.
    assert 0.66 <= found["best"]["stages"][0]["accuracy"] < 0.67
    assert found["best"]["saving_ratio"] == pytest.approx(331 / 168)
    assert [c["task"] for c in found["candidates"]] == ["stronger targets", "weaker inputs", "leaky, 20 steps"]
    assert [c["helps"] for c in found["candidates"]] == [True, True, False]
    assert answer("forecast", EXAMPLE)["flow_steps"] == found["direct"]["flow_steps"]


NEVER = "[network]\nhidden_size = 4\ninitial = 0.01\noutput_initial = -0.01\n"


def test_infinity_is_a_string(study):
    path = study(NEVER + TRAINING + TARGET + STRONGER)
    found = answer("forecast", path)
    assert found["flow_steps"] == found["descent_steps"] == "inf"
    assert found["modes"][0]["flow_steps"] == "inf"
    assert found["modes"][0]["status"] == "not_learned"
    planned = answer("plan", path)
    assert planned["direct"]["flow_steps"] == planned["best"]["flow_steps"] == "inf"
    assert planned["candidates"][0]["saving"] == "nan"  # infinite minus infinite
    grid = answer("phase", study(), "--vary", "target_strength", "--values", "-1", "--accuracies", "0.5")
    assert grid["total_steps"] == [["inf"]]
    assert grid["speedup_steps"] == [["-inf"]]


@pytest.mark.parametrize("command", [("forecast",), ("plan",), ("phase", *PHASE)], ids=lambda c: c[0])
def test_json_is_standard_json(study, command):
    name, *options = command
    result = run(name, study(NEVER + TRAINING + TARGET + STRONGER), *options, "--json")

    def fail(word):
        raise AssertionError(f"{word} is not JSON")

    json.loads(result.stdout, parse_constant=fail)


def test_progress_does_not_spoil_json(study, monkeypatch):
    for name in ("PATIENCE", "LONG", "QUIET"):  # a line at every call
        monkeypatch.setattr(f"learncast._core.progress.{name}", -1.0)
    several = NETWORK + TRAINING + TARGET + "target_strength = [1, 2]\n" + STRONGER.replace("1.5", "[2, 3]")
    assert json.loads(run("plan", study(several), "--json").stdout)["best"]
    assert json.loads(run("phase", study(), *PHASE, "--json").stdout)["values"] == [0.5, 1.5]


def test_numbers_become_plain_values():
    mixed = {"a": np.array([1.0, np.inf]), 2: (np.float64(np.nan), np.int64(3), -np.inf), "c": [True, None, "x"]}
    assert report.plain(mixed) == {"a": [1.0, "inf"], "2": ["nan", 3, "-inf"], "c": [True, None, "x"]}
    assert [display.format_number(v) for v in (1234.567, np.inf, np.nan)] == ["1,234.57", "never", "unknown"]
    assert (display.format_count(331.0), report.as_count(331.0), report.as_count(np.inf)) == ("331", 331, np.inf)


# --- text ------------------------------------------------------------------------------------------------------------


def test_text_has_the_numbers_of_the_json(study):
    text = run("plan", study()).stdout
    assert all(token in text for token in ("study: plan", "stronger", "66%", "168 steps", "331"))
    assert all(name.replace("_", " ") in text for name in ("static_geometry", "stable_learning_rate"))
    text = run("forecast", study(), "--times", "0,100").stdout
    assert all(token in text for token in ("0.99", "331", "329.98"))
    text = run("phase", study(), *PHASE).stdout
    best = answer("phase", study(), *PHASE)
    row = int(np.argmax(np.max(best["speedup_steps"], axis=1)))
    assert f"{best['values'][row]:g}" in text


def test_tables_of_recorded_data_leave_out_what_is_undefined(study):
    """Modes that learn together have no steps of their own, and directions without a target no strength."""
    network = '[network]\nhidden_size = 4\ninitial = "random"\nscale = 0.1\nrecurrence = 0.5\n'
    training = "[training]\nlearning_rate = 0.02\naccuracy = 0.9\n"
    path = study(network + training + '[target]\nname = "all"\ndata = "all.npz"\n[[candidates]]\ndata = "weak.npz"\n')
    inputs = np.random.default_rng(0).normal(size=(60, 3, 2)) * [1.0, 0.6]
    targets = inputs.sum(axis=1) @ [[1.0, -1.0], [0.5, -0.5]]  # one direction of two
    for name, strength in (("all", 1.0), ("weak", 0.2)):
        np.savez(Path(path).parent / f"{name}.npz", inputs=inputs, targets=strength * targets)
    text = run("forecast", path).stdout
    header = next(line for line in text.splitlines() if "u*" in line)
    assert header.split() == ["mode", "u*", "u0"]
    second = [line.split() for line in text.splitlines() if line.split()[:1] == ["2"]]
    assert [row[1] for row in second] == ["0"]
    planned = answer("plan", path)
    (candidate,) = planned["candidates"]
    assert candidate["saving"] == 0
    assert candidate["flow_steps"] == planned["direct"]["flow_steps"] != planned["direct"]["descent_steps"]


def test_the_table_of_a_portrait_has_the_best_stop_of_its_summary(study):
    # Flow and descent disagree about the best stop here: for the flow it is 0.26.
    text = run("phase", study(), "--vary", "target_strength", "--values", "4", "--accuracies", "0.2:0.3:6").stdout
    best = re.search(r"accuracy ([\d.]+): it saves (\d+)", text)
    row = re.search(r"^ 4 +([\d.]+) +([\d.]+) +([\d.]+)", text, re.MULTILINE)
    assert (row[1], row[3]) == (best[1], best[2])


def test_a_target_that_is_never_learned_gets_no_advice_to_train_it(study):
    path = study(NEVER + TRAINING + TARGET + STRONGER)
    assert "never" in run("forecast", path).stdout
    text = run("plan", path).stdout
    assert "never" in text
    assert "directly," not in text


def test_a_candidate_that_does_not_help_is_not_recommended(study):
    weaker = '[[candidates]]\nname = "weaker"\nfamily = "integration"\ntarget_strength = 0.5\n'
    planned = answer("plan", study(NETWORK + TRAINING + TARGET + weaker))
    assert [stage["task"] for stage in planned["best"]["stages"]] == ["goal"]
    assert not planned["worthwhile"]
    grid = ("--vary", "target_strength", "--values", "0.5,1", "--accuracies", "0.1,0.9")
    assert np.max(answer("phase", study(), *grid)["speedup_steps"]) <= 0
    assert run("phase", study(), *grid).exit_code == 0


@pytest.mark.parametrize("name", ["[/]", "[bold]", "task [v2]", "a & b <c>", "naïve ☃"])
def test_names_that_look_like_markup_are_printed_unchanged(study, name):
    path = study(NETWORK + TRAINING + f'[target]\nname = "{name}"\nfamily = "integration"\n' + STRONGER)
    for command in ("plan", "forecast"):
        text = run(command, path).stdout
        assert sum(name in line for line in text.splitlines()) >= 2  # in the summary and in the table


def test_a_long_list_of_times_is_shortened(study):
    assert run("forecast", study(), "--times", "0:500:2001").stdout.count("\n") < 200


# --- files -----------------------------------------------------------------------------------------------------------

COMMANDS = {"forecast": ("forecast",), "plan": ("plan",), "phase": ("phase", *PHASE)}


@pytest.fixture(params=COMMANDS)
def command(request):
    return COMMANDS[request.param]


@dataclass(frozen=True)
class Filed:
    """An answer that was written to files and printed."""

    command: tuple[str, ...]
    out: Path
    printed: dict

    @property
    def kind(self):
        return self.command[0]


@pytest.fixture(scope="module", params=COMMANDS)
def filed(request, tmp_path_factory):
    """Run each command once, as drawing takes half a second."""
    kind, *options = COMMANDS[request.param]
    folder = tmp_path_factory.mktemp("filed")
    (folder / "study.toml").write_text(NETWORK + TRAINING + TARGET + STRONGER, encoding="utf-8")
    out = folder / "deep" / "answer"
    printed = answer(kind, folder / "study.toml", *options, "--out", out)
    return Filed((kind, *options), out, printed)


def test_out_writes_every_file(filed, tmp_path):
    kind, out = filed.kind, filed.out
    assert everything(out) == sorted([f"{kind}.json", f"{kind}.nc", f"{kind}.png", "report.html", "study.toml"])
    assert everything(out.parent) == ["answer", *(f"answer/{name}" for name in everything(out))]
    assert json.loads((out / f"{kind}.json").read_text(encoding="utf-8")) == filed.printed
    stored = xr.load_dataset(out / f"{kind}.nc", engine="h5netcdf")
    assert stored.attrs["learncast_object"] == kind
    assert (out / f"{kind}.png").read_bytes().startswith(b"\x89PNG")
    (tmp_path / "plain").touch()
    assert {oct(path.stat().st_mode) for path in out.iterdir()} == {oct((tmp_path / "plain").stat().st_mode)}


def test_the_written_study_gives_the_same_answer(filed):
    kind, *options = filed.command
    raw = tomllib.loads((filed.out / "study.toml").read_text(encoding="utf-8"))
    assert raw["network"]["recurrence"] == 0.96  # defaults are written out
    assert answer(kind, filed.out / "study.toml", *options) == filed.printed


def test_the_written_study_of_recorded_data_gives_the_same_answer(study, tmp_path):
    path = study(NETWORK + TRAINING + '[target]\ndata = "trials.npz"\n')
    rng = np.random.default_rng(0)
    inputs = rng.normal(size=(50, 4, 1))
    np.savez(Path(path).parent / "trials.npz", inputs=inputs, targets=inputs.sum(axis=1))
    first = answer("forecast", path, "--out", tmp_path / "answer")
    assert [choice["setting"] for choice in first.pop("chosen")] == ["goal"]  # the written study states it
    assert answer("forecast", tmp_path / "answer" / "study.toml") == first


def test_other_files_in_the_folder_are_kept(study, tmp_path):
    out = tmp_path / "answer"
    out.mkdir()
    (out / "notes.txt").write_text("mine")
    (out / "plan.json").write_text("old")
    result = run("plan", study(), "--out", out)
    assert f"{out}/report.html" in result.stdout.replace("\n", "")
    assert (out / "notes.txt").read_text() == "mine"
    assert json.loads((out / "plan.json").read_text())["direct"]
    assert len(everything(out)) == 6


def test_out_must_not_be_a_file(study, tmp_path, command):
    kind, *options = command
    (tmp_path / "taken").write_text("mine")
    path = study()
    before = everything(tmp_path)
    for out in (tmp_path / "taken", tmp_path / "taken" / "deeper"):
        assert "taken" in refused(kind, path, *options, "--out", out)
    assert everything(tmp_path) == before
    assert (tmp_path / "taken").read_text() == "mine"


def test_a_file_as_out_is_refused_before_anything_is_computed(tmp_path):
    (tmp_path / "taken").write_text("mine")
    with pytest.raises(learncast.InvalidSpec) as refusal:
        Delivery(out=tmp_path / "taken").deliver("computing", pytest.fail)
    assert refusal.value.field == "out"


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_a_folder_that_cannot_be_written_is_named(study, tmp_path):
    (tmp_path / "locked").mkdir(mode=0o500)
    assert "locked" in refused("plan", study(), "--out", tmp_path / "locked" / "answer")


def fail_to_draw(*_, **__):
    raise OSError(errno.ENOSPC, "No space left on device", "figure.png")


@pytest.mark.parametrize("nested", ["answer", "deep/er/answer"])
def test_a_failing_figure_leaves_nothing(study, tmp_path, command, monkeypatch, nested):
    kind, *options = command
    path = study()
    before = everything(tmp_path)
    monkeypatch.setattr(Figure, "savefig", fail_to_draw)
    assert "figure.png" in refused(kind, path, *options, "--out", tmp_path / nested)
    assert everything(tmp_path) == before


def test_a_failing_figure_keeps_the_older_answer(filed, study, tmp_path, monkeypatch):
    kind, *options = filed.command
    path, out = study(), tmp_path / "answer"
    shutil.copytree(filed.out, out)
    before = {file.name: file.read_bytes() for file in out.iterdir()}
    monkeypatch.setattr(Figure, "savefig", fail_to_draw)
    refused(kind, path, *options, "--out", out)
    assert {file.name: file.read_bytes() for file in out.iterdir()} == before


@pytest.mark.parametrize(
    "options",
    [
        ("forecast",),
        ("plan",),
        ("phase", "--vary", "target_strength", "--values", "0.5:2:5", "--accuracies", "0.1:0.9:5"),
    ],
    ids=lambda o: o[0],
)
def test_an_infinite_answer_can_be_written(study, tmp_path, options):
    kind, *rest = options
    result = run(kind, study(NEVER + TRAINING + TARGET + STRONGER), *rest, "--out", tmp_path / "answer")
    assert result.exit_code == 0
    assert "report.html" in everything(tmp_path / "answer")


@pytest.mark.parametrize(
    ("values", "accuracies"),
    [("1.5", "0.5"), ("1.5,0.7,1.2", "0.9,0.1,0.5"), ("-1,-2", "0.1,0.5")],
    ids=["one point", "out of order", "costs forever"],
)
def test_portraits_of_every_shape_can_be_written(study, tmp_path, values, accuracies):
    grid = ("--vary", "target_strength", "--values", values, "--accuracies", accuracies)
    result = run("phase", study(), *grid, "--out", tmp_path / "answer")
    assert result.exit_code == 0
    assert result.stderr == ""


# --- the report ------------------------------------------------------------------------------------------------------


class Page(html.parser.HTMLParser):
    """Tags, loaded resources and text of a page."""

    def __init__(self, text):
        super().__init__()
        self.tags, self.loads, self.links, self.words = [], [], [], []
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        loading = ("src", "href", "xlink:href", "srcset", "data", "poster", "action")
        self.loads += [value for key, value in attrs if key in loading and tag != "a" and value[:1] != "#"]
        self.links += [value for key, value in attrs if key == "href" and tag == "a"]

    def handle_data(self, data):
        self.words.append(data)


@pytest.fixture
def page(filed):
    return Page((filed.out / "report.html").read_text(encoding="utf-8"))


def test_the_report_loads_nothing(page):
    assert all(one.startswith("data:image/png;base64,") for one in page.loads)
    assert not {"script", "link", "iframe", "object", "embed"} & set(page.tags)
    assert not any(word in " ".join(page.words) for word in ("@import", "url("))


def test_the_report_has_tables_conditions_and_provenance(page):
    text = " ".join(page.words)
    assert {"table", "svg", "h1", "pre"} <= set(page.tags)
    for name in ("static geometry", "aligned start", "stable learning rate", "exact"):
        assert name in text
    assert f"learncast {learncast.__version__}" in text
    assert "learning_rate = 0.001" in text  # the study


def test_the_report_links_to_its_settings_in_the_explorer(study, tmp_path):
    from learncast.web import CurriculumState

    run("forecast", study(), "--out", tmp_path / "answer")
    (link,) = Page((tmp_path / "answer" / "report.html").read_text(encoding="utf-8")).links
    address, _, query = link.partition("?")
    assert address == "http://127.0.0.1:8765/#curriculum"
    settings = dict(urllib.parse.parse_qsl(query))
    state = CurriculumState.model_validate(settings)
    assert (state.family, state.learning_rate, state.recurrence) == ("integration", 1e-3, 0.96)


def test_the_report_suits_dark_and_narrow_screens(filed):
    text = (filed.out / "report.html").read_text(encoding="utf-8")
    assert "light-dark(" in text
    assert 'name="viewport"' in text


def test_the_report_shows_the_condition_that_fails(study, tmp_path):
    run("forecast", study(NETWORK + "[training]\nlearning_rate = 1\n" + TARGET), "--out", tmp_path / "answer")
    text = (tmp_path / "answer" / "report.html").read_text(encoding="utf-8")
    assert 'class="warn"' in text
    assert "stable learning rate" in text


def test_names_cannot_break_the_report(study, tmp_path):
    name = "<script>alert(1)</script> & more"
    path = study(NETWORK + TRAINING + f'[target]\nname = "{name}"\nfamily = "integration"\n' + STRONGER)
    run("plan", path, "--out", tmp_path / "answer")
    page = Page((tmp_path / "answer" / "report.html").read_text(encoding="utf-8"))
    assert "script" not in page.tags
    assert name in " ".join(page.words)


# --- exit codes ------------------------------------------------------------------------------------------------------


def test_strict_exits_with_1_if_a_condition_fails(study, command):
    kind, *options = command
    fine, wild = study(), study(NETWORK + "[training]\nlearning_rate = 1\n" + TARGET + STRONGER, "wild.toml")
    assert run(kind, fine, *options, "--strict").exit_code == 0
    assert run(kind, wild, *options).exit_code == 0
    result = run(kind, wild, *options, "--strict", "--json")
    assert result.exit_code == 1
    assert result.stderr.count("\n") == 1
    assert "stable_learning_rate" in result.stderr
    assert json.loads(result.stdout)["class"] == "outside"  # the answer is still printed


def test_strict_still_writes_the_answer(study, tmp_path):
    wild = study(NETWORK + "[training]\nlearning_rate = 1\n" + TARGET)
    assert run("forecast", wild, "--strict", "--out", tmp_path / "answer").exit_code == 1
    assert "report.html" in everything(tmp_path / "answer")


def test_descent_that_diverges_has_its_own_status(study):
    path = study(NETWORK + "[training]\nlearning_rate = 1\n" + TARGET + STRONGER)
    assert answer("forecast", path)["status"] == "diverged"
    assert "diverge" in run("plan", path).stdout


def test_usage_errors_exit_2(study):
    for arguments in (("nonsense",), ("plan",), ("plan", study(), "--nonsense"), ("phase", "--nonsense"), ()):
        result = run(*arguments)
        assert result.exit_code == 2
        assert "Traceback" not in result.stderr
    assert run("--help").exit_code == 0
    assert run("plan", "-h").exit_code == 0
    assert run("version").stdout == run("--version").stdout == f"{learncast.__version__}\n"


@pytest.mark.parametrize("question", ["forecast", "plan", "phase"])
def test_a_byte_order_mark_changes_nothing(study, question):
    path = Path(study())
    plain = run(question, path, "--json").stdout
    path.write_bytes(b"\xef\xbb\xbf" + path.read_bytes())
    assert run(question, path, "--json").stdout == plain


@pytest.mark.parametrize("rate", ["1e-300", "1e-30", "1e-18"])
def test_a_plan_refuses_learning_rates_at_which_steps_cannot_be_counted(study, rate):
    result = run("plan", study(NETWORK + f"[training]\nlearning_rate = {rate}\n" + TARGET + STRONGER))
    assert result.exit_code == 2
    assert "learning_rate" in result.stderr
    assert result.stderr.count("\n") == 1


def test_a_huge_learning_rate_fails_a_condition(study):
    path = study(NETWORK + "[training]\nlearning_rate = 1e300\n" + TARGET + STRONGER)
    assert run("plan", path, "--strict").exit_code == 1


BAD_STUDIES = {
    "missing file": (None, "study.toml"),
    "not TOML": ("= nonsense", "study.toml"),
    "negative learning rate": ("[training]\nlearning_rate = -1\n" + TARGET, "training.learning_rate"),
    "unknown key": (TRAINING + TARGET + "target_strenght = 2\n", "'target_strength'"),
    "family is a list": (TRAINING + '[target]\nfamily = ["integration"]\n', "family"),
    "NaN in data": (TRAINING + '[target]\ndata = "nan.npz"\n', "inputs"),
    "one trial": (TRAINING + '[target]\ndata = "one.npz"\n', "[target]"),
    "mismatched steps": (TRAINING + '[target]\ndata = "steps.npz"\n', "[target]"),
    "impossible covariance": (TRAINING + '[target]\ndata = "negative.npz"\n', "input_covariance"),
    "damaged data": (TRAINING + '[target]\ndata = "cut.npz"\n', "cut.npz"),
    "no channels": (NETWORK + TRAINING + TARGET + "input_strength = []\n", "[target]"),
    "too many units": ("[network]\nhidden_size = 10000000\n" + TRAINING + TARGET, "GiB"),
    "overflow": ("[network]\nrecurrence = 1e40\n" + TRAINING + TARGET, "[network]"),
}


@pytest.mark.parametrize("kind", ["forecast", "plan", "phase"])
@pytest.mark.parametrize("case", BAD_STUDIES)
def test_a_bad_study_gives_one_line_and_exit_code_2(study, tmp_path, kind, case):
    text, token = BAD_STUDIES[case]
    path = study("" if text is None else text)
    folder = Path(path).parent
    rng = np.random.default_rng(0)
    inputs = rng.normal(size=(20, 4, 1))
    np.savez(folder / "nan.npz", inputs=np.where(inputs > 2, np.nan, inputs), targets=inputs.sum(axis=1))
    np.savez(folder / "one.npz", inputs=inputs[:1], targets=inputs[:1, 0])
    np.savez(folder / "steps.npz", inputs=inputs, targets=inputs[:, :3])
    negative = -np.eye(4).reshape(4, 1, 4, 1)
    np.savez(folder / "negative.npz", input_covariance=negative, cross_covariance=np.ones((4, 1, 1)))
    (folder / "cut.npz").write_bytes((folder / "nan.npz").read_bytes()[:700])
    if text is None:
        Path(path).unlink()
    before = everything(tmp_path)
    message = refused(kind, path, *(PHASE if kind == "phase" else ()), "--out", tmp_path / "answer")
    assert "study.toml" in message
    assert token in message
    assert everything(tmp_path) == before
    if "cut.npz" in token:
        gc.collect()  # a file left open is reported when it is collected: let that happen in this test


@pytest.mark.parametrize(
    "text",
    [
        "0.5:2",
        "0.5:2:3:4",
        "0.5:2:0",
        "0.5:2:-3",
        "0.5:2:2.5",
        "a:2:3",
        "0.5,,1",
        "0.5 1",
        "",
        "0.5,x",
        "nan",
        "1:inf:3",
    ],
)
def test_bad_ranges_raise(study, text):
    message = refused("phase", study(), "--vary", "target_strength", "--values", text, "--accuracies", "0.5")
    assert "--values" in message or "target_strength" in message
    refused("phase", study(), "--vary", "target_strength", "--values", "1", f"--accuracies={text}")


@pytest.mark.parametrize(
    ("options", "token"),
    [
        (("--times", "-5"), "times"),
        (("--times", "nan"), "times"),
        (("--times", "soon"), "--times"),
        (("--times", "0:inf:3"), "--times"),
        (("--task", "gaol"), "'goal'"),
    ],
)
def test_bad_forecast_options_raise(study, options, token):
    assert token in refused("forecast", study(), *options)


@pytest.mark.parametrize(
    ("vary", "values", "accuracies", "token"),
    [
        ("target_strenght", "1", "0.5", "'target_strenght'"),
        ("target_strength", "1", "1.5", "accuracies"),
        ("input_strength", "1,0", "0.5", "input_strength"),
        ("steps", "10.5", "0.5", "10.5"),
        ("targets", "1", "0.5", "every_step"),
        ("mixing", "1", "0.5", "mixing"),
        ("name", "1,2", "0.5", "name"),
    ],
)
def test_bad_phase_options_raise(study, tmp_path, vary, values, accuracies, token):
    grid = ("--vary", vary, "--values", values, "--accuracies", accuracies)
    assert token in refused("phase", study(), *grid, "--out", tmp_path / "answer")
    assert not (tmp_path / "answer").exists()


@pytest.mark.parametrize(
    ("command", "options"),
    [
        ("advise", ()),
        ("advise", ("study.toml", "--model", "model.py:make")),
        ("window", ()),
        ("window", ("study.toml", "--model", "model.py:make")),
        ("window", ("study.toml", "--lags", "1,2")),
        ("window", ("--model", "model.py:make", "--data", "data.npz")),
        ("window", ("--model", "model.py:make", "--weights", "net.pt")),
        ("window", ("--model", "model.py:make", "--weights", "net.pt", "--data", "data.npz", "--lags", "1.5")),
        ("window", ("--model", "model.py:make", "--weights", "net.pt", "--data", "data.npz", "--lags", "inf")),
    ],
)
def test_options_that_contradict_each_other_raise(command, options):
    refused(command, *options)


def test_a_recorded_target_cannot_be_varied(study):
    path = study(NETWORK + TRAINING + '[target]\ndata = "trials.npz"\n')
    inputs = np.random.default_rng(0).normal(size=(50, 4, 1))
    np.savez(Path(path).parent / "trials.npz", inputs=inputs, targets=inputs.sum(axis=1))
    assert "family" in refused("phase", path, *PHASE)


def test_a_grid_that_is_too_large_is_refused_at_once(study):
    begun = time.monotonic()
    grid = ("--vary", "target_strength", "--values", "0.1:2.0:16000", "--accuracies", "0.01:0.99:16000")
    assert "16000" in refused("phase", study(), *grid)
    assert time.monotonic() - begun < 5.0  # computing it would take minutes
    message = refused("phase", study(), "--vary", "gain", "--values", "0:1:10000000000", "--accuracies", "0.5")
    assert "10000000000" in message


# --- reproduce -------------------------------------------------------------------------------------------------------


def test_reproducing_a_figure_writes_figure_data_and_numbers(tmp_path):
    out = tmp_path / "figures"
    result = run("reproduce", "curriculum", "--figure", "3a", "--out", out)
    assert result.exit_code == 0
    files = [f"figure_3A.{suffix}" for suffix in ("csv", "nc", "png")]
    assert everything(out) == [*files, "numbers.json"]
    assert "sum at correlation 0.5: 2.6667" in result.stdout
    found = answer("reproduce", "curriculum", "--figure", "3A", "--out", out)
    assert [found.pop(f"{part}cpu_seconds") >= 0 for part in ("", "drawing_")] == [True, True]
    assert found == json.loads((out / "numbers.json").read_text())
    assert sorted(found["figures"]["3A"]["files"]) == files


@pytest.mark.parametrize(
    ("arguments", "token"), [(("curriculm",), "'curriculum'"), (("curriculum", "--figure", "9Z"), "'9Z'")]
)
def test_unknown_papers_and_figures_raise(tmp_path, arguments, token):
    assert token in refused("reproduce", *arguments, "--out", tmp_path / "figures")
    assert everything(tmp_path) == []


def test_reproducing_into_a_file_raises(tmp_path):
    (tmp_path / "taken").write_text("mine")
    assert "taken" in refused("reproduce", "curriculum", "--figure", "3A", "--out", tmp_path / "taken")
    assert (tmp_path / "taken").read_text() == "mine"


def test_a_figure_that_cannot_be_drawn_leaves_no_files(tmp_path, monkeypatch):
    monkeypatch.setattr(Figure, "savefig", fail_to_draw)
    assert "figure.png" in refused("reproduce", "curriculum", "--figure", "3A", "--out", tmp_path / "figures")
    assert everything(tmp_path) == []


# --- as a process ----------------------------------------------------------------------------------------------------


def program(*arguments, **keywords):
    command = [sys.executable, "-m", "learncast.cli", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False, **keywords)


def test_the_program_prints_only_json():
    done = program("plan", EXAMPLE, "--json")
    assert done.returncode == 0
    assert done.stderr == ""
    assert json.loads(done.stdout)["direct"]["flow_steps"] == pytest.approx(329.98, abs=0.005)


def test_the_program_exits_with_2_and_no_traceback(tmp_path):
    (tmp_path / "study.toml").write_text("[training]\nlearning_rate = -1\n" + TARGET)
    done = program("plan", "study.toml", "--out", "answer", cwd=tmp_path)
    assert done.returncode == 2
    assert done.stdout == ""
    assert "training.learning_rate" in done.stderr
    assert "Traceback" not in done.stderr
    assert everything(tmp_path) == ["study.toml"]


def test_a_closed_pipe_ends_the_program_quietly():
    reader, writer = os.pipe()
    os.close(reader)  # as `learncast plan ... | true`
    try:
        command = [sys.executable, "-m", "learncast.cli", "plan", str(EXAMPLE)]
        done = subprocess.run(command, stdout=writer, stderr=subprocess.PIPE, text=True, timeout=60, check=False)
    finally:
        os.close(writer)
    assert "Traceback" not in done.stderr
    assert done.returncode == 0  # 1 is for failed checks


def test_phase_without_a_study_answers_the_template():
    result = CliRunner().invoke(app, ["phase", "--values", "0.5,2", "--accuracies", "0.3,0.6", "--json"])
    assert result.exit_code == 0, result.output
    assert json.loads(result.stdout)["values"] == [0.5, 2.0]


def test_help_of_every_command_ends_with_an_example():
    import typer

    def every(group, words=()):
        for name, one in group.commands.items():
            yield from every(one, (*words, name)) if hasattr(one, "commands") else [((*words, name), one)]

    found = list(every(typer.main.get_command(app)))
    assert len(found) > 10
    for words, one in found:
        assert (one.epilog or "").startswith(f"Example: learncast {' '.join(words)}"), words


def test_a_shell_completes_the_commands(monkeypatch, capsys):
    asked = {"_LEARNCAST_COMPLETE": "complete_bash", "COMP_WORDS": "learncast fore", "COMP_CWORD": "1"}
    for key, value in asked.items():
        monkeypatch.setenv(key, value)
    with pytest.raises(SystemExit):
        app(prog_name="learncast", args=[])
    assert capsys.readouterr().out.split() == ["forecast"]
