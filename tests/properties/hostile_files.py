"""Mutated files, and every command that reads them: run as a program, it prints one line of JSON for each.

`python hostile_files.py KIND FIRST LAST` tries the seeds FIRST to LAST - 1 of one kind of file, or of any of them, and
tells their sum at the end, on stderr.
"""

from __future__ import annotations

import contextlib
import importlib
import io
import json
import os
import pickle
import random
import re
import resource
import shutil
import signal
import sys
import tempfile
import time
import traceback
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import torch
import typer
from safetensors.torch import save_file

import learncast as lc
from learncast import windows
from learncast._core.errors import LearncastError
from learncast.cli import app
from learncast.study import Study
from learncast.sweep.studies import sweep_of
from learncast.web.app import serve
from learncast.windows.example_model import build_model, build_optimizer, train_on_batches

#: Seconds that one command may take; `--seconds` ends what is merely long.
PATIENCE, LIMIT = 4, 10
#: Made once: that takes longer than most refusals.
COMMAND = typer.main.get_command(app)

STUDIES = (
    """
name = "small"
[network]
hidden_size = 4
recurrence = 0.9
initial = 0.05
[training]
learning_rate = 0.01
accuracy = 0.9
max_stages = 2
[target]
family = "integration"
steps = 6
target_strength = 1.0
[[candidates]]
name = "stronger"
family = "integration"
steps = 6
target_strength = 1.5
cost = 2.0
[[candidates]]
name = "leaky"
family = "leaky-integration"
steps = 6
timescale = 4.0
correlation = 0.2
""",
    """
[network]
kind = "two-layer"
hidden_size = 4
scale = 0.1
seed = 3
[training]
learning_rate = 0.05
accuracy = 0.9
learn = ["first", "second"]
[target]
family = "hierarchy"
depth = 2
[[candidates]]
family = "static"
cross_correlation = [[1, 0, 0, 0], [0, 0.5, 0, 0], [0, 0, 0.5, 0], [0, 0, 0, 0.25]]
[[sequence]]
family = "hierarchy"
depth = 2
train_steps = 100.0
[[sequence]]
family = "hierarchy"
depth = 2
name = "revised"
swap = [0, 1]
""",
    """
[network]
hidden_size = 4
weights = "weights.npz"
[training]
learning_rate = 0.01
accuracy = 0.8
batch = 16
learn = ["input", "output"]
[target]
data = "trials.csv"
trial = "trial"
step = "step"
inputs = ["input"]
targets = "target"
at = "end"
centre = true
most_bytes = 1000000
[[candidates]]
data = "trials.npz"
name = "arrays"
scale = "channel"
[[sequence]]
data = "trials.csv"
train_steps = 10
[[sequence]]
name = "again"
data = "trials.npz"
""",
    """
[network]
hidden_size = 3
activation = "relu"
[training]
learning_rate = 0.02
accuracy = 0.9
goal = "loss"
switch_cost = 3.0
[target]
family = "sensory"
task = "leaky"
steps = 5
""",
    """
[network]
kind = "linear-rnn"
hidden_size = 3
[training]
learning_rate = 0.02
accuracy = 0.9
[target]
family = "integration"
steps = 5
mixing = [[1.0]]
targets = "every-step"
[sweep]
command = "forecast"
[sweep.grid]
"training.accuracy" = [0.8, 0.9]
""",
)
WINDOW = """
name = "small"
[model]
kind = "diag-gate"
hidden_size = 4
[training]
steps = 3
batch = 8
optimizer = "adamw"
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
#: What numbers and words become.
HOSTILE = """
0 -1 1 2 7 13 1e308 -1e308 1e-308 nan inf -inf 1e9 1000000000 9223372036854775807 -9223372036854775808 0.5 1e-12 64 4096
true '' 'random' 'torch' [] [[]] {} [1,2,3] [[1,0],[0,1]] 1979-05-27 07:32:00 '/dev/zero' '/etc/passwd' '..' 100000
'trials.csv' 'trials.npz' 'weights.npz' 'no.npz' "a\\u0000b" 0x7fffffff
"""


def mutated_text(rng: random.Random, text: str, others: tuple[str, ...]) -> str:
    """One to four changes of words, numbers, lines or letters."""
    for _ in range(rng.choice((1, 1, 2, 4))):
        lines, way = text.split("\n"), rng.random()
        k = rng.randrange(len(lines))
        if way < 0.6:
            places = r"(?<==)[^\n]+" if way < 0.2 else r"\b\d[\d.]*" if way < 0.4 else r"[\w.+-]+|\"[^\"\n]*\""
            words = [m.span() for m in re.finditer(places, text)]
            if words:
                begin, end = rng.choice(words)
                mild = f"{rng.choice((0, 1, 2, 3, 5, 8, 17, 0.3, 0.7, 1.3, -0.5))}"
                text = text[:begin] + (mild if rng.random() < 0.4 else rng.choice(HOSTILE.split())) + text[end:]
        elif way < 0.7:
            text = "\n".join([*lines[:k], *lines[k + 1 :]])
        elif way < 0.8:
            text = "\n".join([*lines[:k], rng.choice(rng.choice(others).split("\n")), *lines[k:]])
        elif way < 0.9:
            j = rng.randrange(len(lines))
            lines[k], lines[j] = lines[j], lines[k]
            text = "\n".join(lines)
        else:
            place = rng.randrange(len(text) + 1)
            text = text[:place] + rng.choice("\0\t\n\"',=[]{\ufeff\U0001f600") + text[place:]
    return text


def mutated_bytes(rng: random.Random, content: bytes) -> bytes:
    """Some bytes changed, lost, doubled, put in or cut off."""
    found = bytearray(content)
    for _ in range(rng.choice((1, 1, 2, 4, 16))):
        place, length = rng.randrange(max(len(found), 1)), rng.choice((1, 4, 8, 64))
        way = rng.random()
        if way < 0.6:
            put = rng.choice((bytes(length), b"\xff" * length, rng.randbytes(length), rng.randbytes(1)))
            found[place : place + len(put)] = put
        elif way < 0.7:
            del found[place : place + length]
        elif way < 0.8:
            found[place:place] = found[place : place + length]
        elif way < 0.9:
            found[place:place] = rng.randbytes(length)
        else:
            del found[place:]
    return bytes(found)


def mutated_archive(rng: random.Random, content: bytes) -> bytes:
    """A zip file of which one member is mutated, with the right checksum: what lies behind it is reached."""
    made = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(content)) as old, zipfile.ZipFile(made, "w") as new:
        chosen = rng.choice([one for one in old.infolist() if one.file_size])
        for one in old.infolist():
            part = old.read(one)
            new.writestr(one.filename, mutated_bytes(rng, part) if one is chosen else part, one.compress_type)
    return made.getvalue()


class Trap:
    """What leaves a mark when a file that holds it is unpickled by whoever runs what it says."""

    def __init__(self, mark: Path) -> None:
        self.mark = mark

    def __reduce__(self) -> tuple[object, ...]:
        return (Path.touch, (self.mark,))


def prepare(folder: Path) -> None:
    """Good files of every kind, and a few that would run code."""
    rng = np.random.default_rng(0)
    trials, steps = np.divmod(np.arange(48), 6)
    x, y = rng.standard_normal(48).round(3), rng.standard_normal(48).round(3)
    rows = "".join(f"{t},{s},{a},{b}\n" for t, s, a, b in zip(trials, steps, x, y, strict=True))
    (folder / "trials.csv").write_text("trial,step,input,target\n" + rows)
    np.savez(folder / "trials.npz", inputs=rng.standard_normal((16, 6, 1)), targets=rng.standard_normal((16, 1)))
    network = lc.LinearRNN.random(1, 4, 1, recurrence=0.9, scale=0.1, rng=0)
    fields = ("input_weights", "recurrent_weights", "output_weights")
    np.savez_compressed(folder / "weights.npz", **{name: getattr(network, name) for name in fields})
    for k, text in enumerate(STUDIES):
        (folder / f"study{k}.toml").write_text(text)
    (folder / "window.toml").write_text(WINDOW)
    inputs = rng.standard_normal((64, 12, 2)).astype(np.float32)
    targets = np.roll(inputs[..., :1], 2, axis=1)
    np.savez(folder / "data.npz", inputs=inputs, targets=targets)
    save_file({"inputs": torch.randn(16, 6, 1), "targets": torch.randn(16, 1)}, folder / "trials.safetensors")
    model = build_model("gru", inputs=2, outputs=1, hidden_size=4, seed=7)
    optimizer = build_optimizer("adamw", model, learning_rate=1e-2)
    train_on_batches(model, optimizer, inputs, targets, steps=3, batch=16, rng=rng)
    save_file(dict(model.state_dict()), folder / "net.safetensors")
    save_file({"weights": torch.randn(4, 4)}, folder / "opt.safetensors")
    torch.save(model.state_dict(), folder / "net.pt")
    torch.save(model.state_dict(), folder / "old.pt", _use_new_zipfile_serialization=False)
    torch.save(optimizer.state_dict(), folder / "opt.pt")
    trap = Trap(folder / "sprung")
    torch.save({"weights": trap}, folder / "trap.pt")
    (folder / "plain.pt").write_bytes(pickle.dumps(trap, protocol=2))
    np.savez(folder / "trap.npz", inputs=np.array([trap], dtype=object), targets=np.array([trap], dtype=object))
    (folder / "net.py").write_text(
        "import torch\nfrom learncast.windows.example_model import build_model\n"
        "def build():\n    return build_model('gru', inputs=2, outputs=1, hidden_size=4, seed=0)\n"
        "def pair():\n    model = build()\n    return model, torch.optim.AdamW(model.parameters(), lr=1e-2)\n"
    )
    asked = windows.Measurement(lags=[1, 2, 4])
    windows.window(model, inputs, targets, optimizer=optimizer, measurement=asked).save(folder / "window.nc")
    task = lc.tasks.integration(steps=6)
    start = lc.LinearRNN.aligned(recurrence=0.9, initial=0.05, hidden_size=4, task=task)
    lc.forecast(task, start, learning_rate=0.01).solution.at(range(10)).save(folder / "trajectory.nc")
    stronger = lc.tasks.integration(steps=6, target_strength=1.5, name="stronger")
    lc.plan(task, [stronger], start, learning_rate=0.01).save(folder / "plan.nc")


def question(*words: object) -> Callable[[], object]:
    """A command, asked in this process; what it raises beside its own exit is raised."""

    def ask() -> int:
        code, errors = 0, io.StringIO()
        try:
            with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(errors):
                COMMAND.main([str(word) for word in words], prog_name="learncast")
        except SystemExit as left:
            code = left.code
        if code == 2:
            check_words(errors.getvalue())
        return code

    return ask


def check_words(words: str) -> None:
    """A refusal is one sentence without a library's advice."""
    last = words.strip().splitlines()[-1] if words.strip() else ""
    if "pickle" in words or "Traceback" in words or not last or len(words) > 5000:
        raise AssertionError(f"this is no refusal: {words[:500]!r}")


def look(path: Path) -> None:
    """Open a window as the explorer does, without serving it."""
    import learncast.web.app as web

    run, web._run = web._run, lambda *_: None
    try:
        serve("127.0.0.1", 0, path, browse=False)
    finally:
        web._run = run


PLAIN, MODEL = (("window", "--model", f"net.py:{name}") for name in ("build", "pair"))


def of_study(path: Path, text: str) -> Iterator[Callable[[], object]]:
    """Every command that reads a study; what one cannot load no other can."""
    wait = ("--seconds", PATIENCE)
    if "[model]" in text:
        yield question("window", path, *wait)
        return
    yield question("forecast", path, *wait)
    try:
        Study.load(path)
    except LearncastError:
        yield lambda: sweep_of(path)
        return
    yield question("plan", path, *wait)
    yield question("forget", path, *wait)
    yield question("phase", path, "--vary", "target_strength", "--values", "0.5,1", "--accuracies", "0.3,0.6", *wait)
    yield question("check", path, "--seeds", 2, "--processes", 1, *wait)
    yield lambda: sweep_of(path)


def of_file(kind: str, path: Path, name: str) -> Iterator[Callable[[], object]]:
    """Every command that reads a file of this kind."""
    wait = ("--seconds", PATIENCE)
    if kind == "nc":
        loaders: dict[str, Callable[[Path], object]] = {
            "window.nc": windows.Window.load,
            "trajectory.nc": lc.Trajectory.load,
            "plan.nc": lc.Plan.load,
        }
        yield lambda: loaders[name](path)
        if name == "window.nc":
            yield lambda: look(path)
        return
    if name in ("net.pt", "old.pt", "trap.pt", "plain.pt", "net.safetensors"):
        yield question(*PLAIN, "--weights", path, "--data", "data.npz", "--lags", "1,2", *wait)
    elif name in ("opt.pt", "opt.safetensors"):
        yield question(*MODEL, "--weights", "net.pt", "--data", "data.npz", "--optimizer-state", path, *wait)
    elif name == "data.npz":
        yield question(*PLAIN, "--weights", "net.pt", "--data", path, "--lags", "1,2", *wait)
    else:
        study = Path("asked.toml")
        key = f'[network]\nweights = "{path.name}"\n' if name == "weights.npz" else "[network]\nhidden_size = 3\n"
        data = "trials.csv" if name == "weights.npz" else path.name
        stages = f'[[sequence]]\ndata = "{data}"\ntrain_steps = 20\n[[sequence]]\ndata = "trials.csv"\nname = "again"\n'
        training = "[training]\nlearning_rate = 0.01\naccuracy = 0.5\n"
        study.write_text(f'{key}{training}[target]\ndata = "{data}"\n{stages}')
        yield question("forecast", study, *wait)
        yield question("forget", study, *wait)


SOURCES = {
    "nc": ("window.nc", "trajectory.nc", "plan.nc"),
    "npz": ("trials.npz", "weights.npz", "data.npz", "trap.npz"),
    "csv": ("trials.csv",),
    "safetensors": ("net.safetensors", "opt.safetensors", "trials.safetensors"),
    "pt": ("net.pt", "opt.pt", "old.pt", "trap.pt", "plain.pt"),
}


def mutant(kind: str, seed: int) -> tuple[Path, Iterator[Callable[[], object]]]:
    """The file of one seed, and what is asked of it."""
    rng = random.Random(f"{kind} {seed}")
    if kind == "study":
        texts = (*STUDIES, WINDOW)
        text = mutated_text(rng, rng.choice(texts), texts)
        path = Path(f"mutant{seed}.toml")
        path.write_text(text, encoding="utf-8", errors="surrogatepass")
        return path, of_study(path, text)
    name = rng.choice(SOURCES[kind])
    path = Path(f"mutant{seed}.{kind}")
    if kind == "csv" and rng.random() < 0.7:
        text = Path(name).read_text()
        path.write_text(mutated_text(rng, text, (text,)))
    else:
        content = Path(name).read_bytes()
        inside = content[:2] == b"PK" and rng.random() < 0.7
        path.write_bytes((mutated_archive if inside else mutated_bytes)(rng, content))
    return path, of_file(kind, path, name)


class TooLong(BaseException):
    """A command that took longer than it may."""


def _too_long(*_: object) -> None:
    raise TooLong


def tried(kind: str, seed: int) -> dict[str, object]:
    """How all commands took one mutant."""
    path, asked = mutant(kind, seed)
    found: dict[str, object] = {"seed": seed, "problem": None, "codes": [], "seconds": 0.0}
    for way in (signal.SIGALRM, signal.SIGPROF):
        signal.signal(way, _too_long)
    for ask in asked:
        begun = time.process_time()
        # Of its own time, as `seconds` is; a read that never ends takes none, and is found by the clock.
        signal.setitimer(signal.ITIMER_PROF, LIMIT + 2)
        signal.alarm(10 * LIMIT)
        try:
            code = ask()
        except LearncastError as error:
            code = 2
            check_words(str(error))
        except typer.Exit as left:
            code = left.exit_code
        except BaseException:
            found["problem"], code = traceback.format_exc(limit=-6), None
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.alarm(0)
        found["codes"].append(code if isinstance(code, int | None) else 0)
        found["seconds"] = max(found["seconds"], time.process_time() - begun)
    path.unlink(missing_ok=True)
    if found["seconds"] > LIMIT or Path("sprung").exists():
        found["problem"] = found["problem"] or ("too long" if not Path("sprung").exists() else "it was executed")
    found["bytes"] = most_held()
    return found


def most_held() -> int:
    """Bytes; where the system tells it, without what the process held that started this one."""
    own = Path("/proc/self/status")
    if own.exists():
        return 1024 * int(own.read_text(encoding="utf-8").partition("VmHWM:")[2].split()[0])
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def tally(kind: str, rows: list[dict]) -> str:
    """What the mutants of one kind came to: how many, what went wrong, the longest time and the most memory."""
    problems = [str(row["problem"]) for row in rows if row["problem"]]
    executed, long = (sum(words in one for one in problems) for words in ("it was executed", "too long"))
    answered = sum(2 not in row["codes"] for row in rows)
    longest, most = (max(row[key] for row in rows) for key in ("seconds", "bytes"))
    return (
        f"{kind} seeds {rows[0]['seed']} to {rows[-1]['seed']}: {len(rows)} files, {answered} never refused; "
        f"{len(problems) - executed - long} tracebacks, {executed} executed, {long} too long; "
        f"{longest:.1f} s and {most / 1e6:.0f} MB at most"
    )


def main(kind: str, first: int, last: int) -> None:
    """Try seeds one after another in a folder of their own."""
    os.environ.update(COLUMNS="200", TERM="dumb")
    told = os.fdopen(os.dup(1), "w")
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # for what the explorer says when it begins
    for name in ("torch._dynamo", "matplotlib.pyplot", "xarray", "pandas"):
        importlib.import_module(name)
    loaded = most_held()  # by libraries alone, before anything is read
    folder = tempfile.mkdtemp()
    os.chdir(folder)
    try:
        prepare(Path(folder))
        rows = []
        for seed in range(first, last):
            chosen = ("study", *SOURCES)[seed % 6] if kind == "any" else kind
            rows.append({**tried(chosen, seed), "loaded": loaded})
            print(json.dumps(rows[-1]), file=told, flush=True)
        print(tally(kind, rows), file=sys.stderr)
    finally:
        os.chdir("/")
        shutil.rmtree(folder)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))
