"""The wheel and the sdist, installed where nothing else is: every extra keeps its promise, and its absence is said."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tarfile
import tomllib
import venv
import zipfile
from functools import cache
from importlib.util import find_spec
from pathlib import Path

import pytest

from learncast._core.packages import EXTRAS, install

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
STUDY = ROOT / "examples" / "two_integration_tasks.toml"
#: What each extra is for, asked in an environment that has no other.
USES = {
    "torch": """
        import numpy, learncast as lc
        from safetensors.numpy import save_file
        task = lc.tasks.integration(steps=4)
        start = lc.LinearRNN.aligned(recurrence=0.9, initial=0.05, hidden_size=2, task=task)
        print(lc.training.train(task, start, lc.Training(0.01, batch=20), steps=5).steps)
        save_file({"inputs": numpy.ones((4, 2, 1)), "targets": numpy.ones((4, 1))}, "trials.safetensors")
        print(lc.tasks.from_file("trials.safetensors"))
    """,
    "tables": """
        import numpy, pandas, learncast as lc
        trial, step = numpy.divmod(numpy.arange(40), 5)
        numbers = numpy.random.default_rng(0).standard_normal((2, 40))
        columns = {"trial": trial, "step": step, "input": numbers[0], "target": numbers[1]}
        pandas.DataFrame(columns).to_parquet("rig.parquet")
        names = {"trial": "trial", "step": "step", "inputs": ["input"], "targets": "target"}
        print(lc.tasks.from_table("rig.parquet", **names))
    """,
    "sweep": """
        from learncast import sweep
        from distributed import Client, LocalCluster
        print(sweep.run, Client, LocalCluster)
    """,
    "web": """
        import uvicorn
        from learncast.web.app import application
        print(len(application().routes))
    """,
    "neurogym": """
        import learncast as lc
        print(lc.tasks.from_environment("PerceptualDecisionMaking-v0", trials=20, seed=0))
    """,
}
USER = """
import numpy as np

import learncast as lc

task = lc.tasks.integration(steps=4)
start = lc.LinearRNN.aligned(recurrence=0.9, initial=0.05, hidden_size=2, task=task)
steps: float = lc.time_to_learn(lc.solve(task, start, learning_rate=0.01), 0.9).flow_steps
reveal_type(start)
wrong: str = start.hidden_size
"""


def test_every_extra_has_its_advice():
    extras = {
        name: given
        for name, given in PROJECT["optional-dependencies"].items()
        if name not in ("test", "dev", "docs", "all")
    }
    assert {name: tuple(one.partition(">=")[0] for one in given) for name, given in extras.items()} == EXTRAS
    assert PROJECT["optional-dependencies"]["all"] == [f"learncast[{','.join(EXTRAS)}]"]
    assert set(USES) == set(EXTRAS)
    assert all(install(extra).startswith("pip install ") and "learncast" not in install(extra) for extra in EXTRAS)


def test_promised_interpreters_are_tried():
    promised = {one.rpartition(" ")[2] for one in PROJECT["classifiers"] if "Python :: 3." in one}
    tried = (ROOT / ".github" / "workflows" / "ci.yml").read_text(encoding="utf-8")
    assert f"python: {json.dumps(sorted(promised))}" in tried


class Environment:
    """A virtual environment that sees nothing of this one, and the packages of another where told."""

    def __init__(self, folder: Path, below: Environment | None = None) -> None:
        venv.create(folder, with_pip=True)
        self.folder = folder
        self.python = folder / ("Scripts/python.exe" if sys.platform == "win32" else "bin/python")
        if below is not None:
            (self.packages / "below.pth").write_text(f"{below.packages}\n", encoding="utf-8")

    @property
    def packages(self) -> Path:
        windows = sys.platform == "win32"
        version = f"python{sys.version_info[0]}.{sys.version_info[1]}"
        return self.folder / ("Lib/site-packages" if windows else f"lib/{version}/site-packages")

    def run(self, *words: object, code: int = 0) -> subprocess.CompletedProcess[str]:
        """What Python says; it knows nothing of the folder that the tests lie in."""
        kept = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
        command = [str(self.python), *(str(word) for word in words)]
        done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=self.folder, env=kept)
        assert done.returncode == code, (command, done.stdout[-2000:], done.stderr[-2000:])
        return done

    def add(self, *requirements: str) -> None:
        # Not compiled: a few of thousands of modules are loaded.
        self.run("-m", "pip", "install", "--quiet", "--no-compile", "-c", ROOT / "constraints.txt", *requirements)


@pytest.fixture(scope="session")
def built(tmp_path_factory) -> Path:
    """A folder with the wheel and the sdist."""
    folder = tmp_path_factory.mktemp("built")
    environment = Environment(folder / "build")
    environment.add("hatchling")
    code = f"import os; os.chdir({str(ROOT)!r}); from hatchling.cli import hatchling; hatchling()"
    environment.run("-c", code, "build", "-d", folder / "dist")
    return folder / "dist"


@pytest.fixture(scope="session")
def core(built, tmp_path_factory) -> Environment:
    """The wheel without any extra."""
    environment = Environment(tmp_path_factory.mktemp("core") / "environment")
    environment.add(str(next(built.glob("*.whl"))))
    return environment


@cache
def own_files() -> set[str]:
    """What the package consists of, as the working copy has it."""
    files = (path for path in (ROOT / "src" / "learncast").rglob("*") if path.is_file())
    return {path.relative_to(ROOT / "src").as_posix() for path in files if "__pycache__" not in path.parts}


@pytest.mark.slow
def test_both_archives_hold_the_package_and_no_more(built):
    with zipfile.ZipFile(next(built.glob("*.whl"))) as wheel:
        held = {name for name in wheel.namelist() if ".dist-info/" not in name}
        licence = [name for name in wheel.namelist() if name.endswith("/LICENSE")]
    assert held == own_files()
    assert {"learncast/py.typed", "learncast/web/page/index.html"} <= held
    assert licence
    with tarfile.open(next(built.glob("*.tar.gz"))) as sdist:
        names = {name.partition("/")[2] for name in sdist.getnames()}
    assert {f"src/{name}" for name in own_files()} <= names
    assert {"pyproject.toml", "README.md", "LICENSE"} <= names
    assert not {name for name in names if name.startswith((".venv", "demo/", "reproduced/"))}


@pytest.mark.slow
def test_the_sdist_makes_the_same_wheel(built, tmp_path):
    environment = Environment(tmp_path / "environment")
    sdist = next(built.glob("*.tar.gz"))
    environment.run("-m", "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir", tmp_path, sdist)
    with zipfile.ZipFile(next(tmp_path.glob("*.whl"))) as again, zipfile.ZipFile(next(built.glob("*.whl"))) as wheel:
        assert again.namelist() == wheel.namelist()
        assert all(again.read(name) == wheel.read(name) for name in wheel.namelist())


@pytest.mark.slow
def test_the_core_alone_answers_and_says_what_it_lacks(core):
    assert "/environment/" in core.run("-c", "import learncast; print(learncast.__file__)").stdout.replace("\\", "/")
    found = json.loads(core.run("-m", "learncast", "plan", STUDY, "--json").stdout)
    assert found
    core.run("-m", "learncast", "forecast", STUDY, "--out", "answered")
    assert (core.folder / "answered").is_dir()
    for extra, words in {"torch": ("check", STUDY), "web": ("explore", "--no-browser")}.items():
        said = core.run("-m", "learncast", *words, code=2).stderr
        assert said.strip().endswith(f"{install(extra)}."), said
        assert len(said.strip().splitlines()) == 1
    script = core.python.with_name("learncast.exe" if sys.platform == "win32" else "learncast")
    assert "Usage" in subprocess.run([script, "--help"], capture_output=True, text=True, check=True).stdout


@pytest.mark.slow
@pytest.mark.parametrize("extra", [*EXTRAS, "all"])
def test_an_extra_alone_brings_what_it_is_for(core, built, tmp_path, extra):
    wanted = EXTRAS if extra == "all" else (extra,)
    if find_spec("torch") is None and any("torch" in EXTRAS[one] for one in wanted):
        pytest.skip("torch is not installed here, so that it may have no wheel")
    environment = Environment(tmp_path / "environment", below=core)
    environment.add(f"{next(built.glob('*.whl'))}[{extra}]")
    for one in wanted:
        lines = USES[one].splitlines()
        assert environment.run("-c", "\n".join(line.removeprefix(" " * 8) for line in lines)).stdout


@pytest.mark.slow
def test_the_packages_of_an_advice_are_those_of_the_extra(core, tmp_path):
    environment = Environment(tmp_path / "environment", below=core)
    environment.add(*install("tables").split()[2:])
    lines = USES["tables"].splitlines()
    assert environment.run("-c", "\n".join(line.removeprefix(" " * 8) for line in lines)).stdout


@pytest.mark.slow
def test_types_reach_a_user_s_file(core, tmp_path):
    (tmp_path / "user.py").write_text(USER, encoding="utf-8")
    words = ["-m", "mypy", "--strict", "--python-executable", str(core.python), "--cache-dir", str(tmp_path / "cache")]
    kept = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "MYPYPATH")}
    command = [sys.executable, *words, "user.py"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=tmp_path, env=kept)
    notes = [line for line in done.stdout.splitlines() if "note:" in line]
    errors = [line for line in done.stdout.splitlines() if "error:" in line]
    assert 'Revealed type is "learncast.networks.linear_rnn.LinearRNN"' in notes[0]
    assert len(errors) == 1, done.stdout
    assert errors[0].startswith("user.py:10: error: Incompatible types in assignment")
