"""Importing learncast is cheap: loaded modules are counted, which does not depend on the speed of the machine."""

from __future__ import annotations

import functools
import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

EXAMPLES = Path(__file__).parents[2] / "examples"

#: Modules that take longer to load than most answers take.
HEAVY = {
    "torch", "matplotlib", "xarray", "pandas", "h5py", "dask", "starlette", "scipy.linalg", "scipy.optimize",
    "scipy.integrate", "scipy.sparse", "scipy.special", "scipy.stats",
}  # fmt: skip


@functools.cache
def loaded(code: str) -> set[str]:
    """Modules that a new interpreter has loaded after running some code."""
    ended = f"{code}\nimport json, sys; print(json.dumps(sorted(sys.modules)), file=sys.stderr)"
    done = subprocess.run([sys.executable, "-c", ended], capture_output=True, text=True, check=True)
    return set(json.loads(done.stderr.splitlines()[-1]))


def command(*calls: list[str], code: int = 0) -> set[str]:
    """Modules loaded after commands that end with this exit code."""
    return loaded(
        f"""
from typer.testing import CliRunner
from learncast.cli import app
for words in {list(calls)}:
    result = CliRunner().invoke(app, words)
    assert result.exit_code == {code}, (result.output, result.exception)
"""
    )


def test_importing_loads_nothing_but_itself():
    found = loaded("import learncast")
    assert len({name for name in found if name.startswith("learncast")}) == 1
    assert not found & {*HEAVY, "numpy", "pydantic", "typer", "rich"}


def test_names_cost_no_more_than_numpy_and_xarray():
    names = ["plan", "forecast", "follow", "forget", "phase", "tasks", "Task", "Training", "LinearRNN", "TwoLayer"]
    reference = loaded("import numpy, xarray")
    found = loaded("import learncast\n" + "\n".join(f"learncast.{name}" for name in names))
    assert not found & {*HEAVY, "pydantic", "typer", "rich"}
    assert len(found) < len(reference)


def test_help_does_not_load_numpy():
    assert not command(["--help"]) & {*HEAVY, "numpy", "pydantic"}


@pytest.mark.parametrize("asked", ["forecast", "plan", "forget", "check", "window", "advise"])
def test_an_error_in_a_study_is_reported_before_anything_heavy_loads(tmp_path, asked):
    (tmp_path / "misspelt.toml").write_text("[training]\nlearning_rat = 1e-3\n")
    (tmp_path / "other.toml").write_text("no toml")
    paths = [str(tmp_path / f"{name}.toml") for name in ("none", "misspelt", "other")]
    found = command(*([asked, path] for path in paths), code=2)
    assert not found & {*HEAVY, "numpy"}
    assert not {name for name in found if name.startswith("learncast.") and name.split(".")[1] in ("tasks", "theory")}


def test_a_plan_by_modes_loads_nothing_heavy():
    found = command(["plan", str(EXAMPLES / "two_integration_tasks.toml"), "--json"])
    assert not found & HEAVY
    assert len(found) < len(loaded("import numpy, xarray"))


def test_a_forecast_of_recorded_trials_does_not_load_xarray(tmp_path):
    rng = np.random.default_rng(0)
    inputs = rng.exponential(size=(60, 8, 3))
    np.savez(tmp_path / "trials.npz", x=inputs, y=inputs.mean(axis=1)[:, :2])
    (tmp_path / "study.toml").write_text('[target]\ndata = "trials.npz"\ninputs = "x"\ntargets = "y"\n')
    assert not command(["forecast", str(tmp_path / "study.toml"), "--json"]) & {
        "xarray",
        "pandas",
        "matplotlib",
        "torch",
    }


def test_the_first_figure_of_the_explorer_loads_nothing_heavy():
    pytest.importorskip("starlette")
    opened = "from learncast.web import all_panels, answer, application\napplication()"
    found = loaded(f"{opened}\nanswer(all_panels()[0], 'portrait', '{{}}')")
    assert not found & (HEAVY - {"starlette"})


def test_training_does_not_load_the_compiler_of_torch():
    pytest.importorskip("torch")
    trained = """
import learncast as lc
network = lc.LinearRNN.aligned(recurrence=0.9, initial=0.1, hidden_size=2)
lc.training.train(lc.tasks.integration(steps=4), network, lc.Training(0.01), steps=3)
"""
    found = loaded(trained)
    assert "torch.nn" in found
    assert "torch._dynamo" not in found
