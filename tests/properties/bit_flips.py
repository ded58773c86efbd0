"""Flip one bit of a file and read it; `python -m tests.properties.bit_flips --flips 2000` prints the outcomes.

Many files are read in one process, because starting the child process of each file takes most of the time. If that
process crashes, hangs or takes too much memory, the same file is read again in the way that users read it.
"""

from __future__ import annotations

import argparse
import multiprocessing
import resource
import shutil
import signal
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import scipy.io

import learncast as lc
from learncast import sweep, tasks
from learncast._core import isolation

#: Seconds after which a process that reads many files is ended, if one file takes so long.
SECONDS = 10
#: Address space of that process beyond what it has.
MEMORY = 2**32
OUTCOMES = ("unchanged", "refused", "different", "raised", "crashed")


@dataclass(frozen=True)
class Case:
    """How a good file is made, how it is read, and whether it holds a checksum of its numbers."""

    make: Callable[[Path], Path]
    read: Callable[[Path], Any]
    sealed: bool = False


def numbers() -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(1)
    return rng.standard_normal((6, 3, 2)), rng.standard_normal((6, 1))


def make_npz(folder: Path) -> Path:
    inputs, targets = numbers()
    np.savez_compressed(folder / "trials.npz", inputs=inputs, targets=targets)
    return folder / "trials.npz"


def make_mat(folder: Path) -> Path:
    inputs, targets = numbers()
    scipy.io.savemat(folder / "trials.mat", {"inputs": inputs, "targets": targets}, do_compression=True)
    return folder / "trials.mat"


def make_h5(folder: Path) -> Path:
    with h5py.File(folder / "trials.h5", "w") as file:
        file["inputs"], file["targets"] = numbers()
    return folder / "trials.h5"


def make_safetensors(folder: Path) -> Path:
    from safetensors.numpy import save_file

    inputs, targets = numbers()
    save_file({"inputs": inputs, "targets": targets}, folder / "trials.safetensors")
    return folder / "trials.safetensors"


def make_table(folder: Path, suffix: str) -> Path:
    import pandas

    inputs, targets = numbers()
    rows = [(k, t, *inputs[k, t], *targets[k]) for k in range(6) for t in range(3)]
    frame = pandas.DataFrame(rows, columns=["trial", "step", "input1", "input2", "target"])
    path = folder / f"trials{suffix}"
    (frame.to_csv if suffix == ".csv" else frame.to_parquet)(path, index=False)
    return path


def read_trials(path: Path) -> list[np.ndarray]:
    task = tasks.from_file(path)
    return [task.input_covariance, task.cross_covariance]


def make_weights(folder: Path) -> Path:
    import torch

    torch.save({"weight": torch.arange(6.0).reshape(2, 3)}, folder / "weights.pt")
    return folder / "weights.pt"


def read_weights(path: Path) -> list[np.ndarray]:
    import torch

    from learncast.windows import stored_model

    model = torch.nn.Linear(3, 2, bias=False)
    stored_model.load_weights(model, path)
    return [model.weight.detach().numpy()]


def make_result(folder: Path) -> Path:
    task = tasks.integration(steps=5)
    network = lc.LinearRNN.aligned(recurrence=0.9, initial=0.01, hidden_size=3, task=task)
    return lc.forecast(task, network, learning_rate=1e-3).solution.at(range(5)).save(folder / "run.nc")


def read_result(path: Path) -> Any:
    return lc.Trajectory.load(path).dataset


def squared(spec: sweep.Spec) -> dict[str, object]:
    return {"square": spec["x"] ** 2, "path": ("t", np.arange(3.0) * spec["x"])}


def make_store(folder: Path) -> Path:
    sweep.run(squared, {"x": [1, 2, 3]}, store=folder / "store", executor="in-process")
    return folder / "store"


def make_ledger(folder: Path) -> Path:
    return make_store(folder) / "ledger.sqlite"


def make_stored_result(folder: Path) -> Path:
    return sorted(make_store(folder).glob("results/*/*.nc"))[0]


def read_store(path: Path) -> Any:
    """Gather the store of a file; then no other question may crash or raise anything else than a `LearncastError`."""
    store = next(folder for folder in path.parents if folder.name == "store")
    kept = store.with_name("kept")
    shutil.copytree(store, kept)
    problems: list[Exception] = []
    gathered = None
    try:
        for ask in (sweep.gather, sweep.status, lambda folder: list(sweep.failures(folder)), sweep.verify):
            try:
                found = ask(store)
                gathered = found if ask is sweep.gather else gathered
            except lc.LearncastError as error:
                problems.append(error)
    finally:  # `verify` may have moved a result
        shutil.rmtree(store)
        kept.rename(store)
    if gathered is None:
        raise problems[0]
    return gathered


CASES = {
    ".nc": Case(make_result, read_result, sealed=True),
    ".npz": Case(make_npz, read_trials, sealed=True),
    ".mat": Case(make_mat, read_trials),
    ".h5": Case(make_h5, read_trials),
    ".csv": Case(lambda folder: make_table(folder, ".csv"), read_trials),
    ".parquet": Case(lambda folder: make_table(folder, ".parquet"), read_trials),
    ".safetensors": Case(make_safetensors, read_trials),
    ".pt": Case(make_weights, read_weights, sealed=True),
    "ledger": Case(make_ledger, read_store, sealed=True),
    "result of a sweep": Case(make_stored_result, read_store, sealed=True),
}


def flipped(content: bytes, number: int) -> bytes:
    """The content with one bit changed, chosen by a number."""
    rng = np.random.default_rng(number)
    changed, place = bytearray(content), int(rng.integers(len(content)))
    changed[place] ^= 1 << int(rng.integers(8))
    return bytes(changed)


def same(one: Any, other: Any) -> bool:
    if isinstance(one, list):
        return all(np.array_equal(a, b) for a, b in zip(one, other, strict=True))
    return bool(one.identical(other))


def outcome(case: Case, path: Path, content: bytes, before: Any, number: int) -> str:
    """Outcome of one flip: one of `OUTCOMES`, and the exception if it is not a `LearncastError`."""
    path.write_bytes(flipped(content, number))
    try:
        return "unchanged" if same(case.read(path), before) else "different"
    except lc.LearncastError:
        return "refused"
    except Exception as error:
        return f"raised {error!r} at flip {number}"
    finally:
        path.write_bytes(content)


def tried(case: Case, path: Path, flips: Sequence[int], *, apart: bool) -> list[str]:
    """Outcomes of flips in one process, as far as it comes; with `apart`, each file has its own child process too."""
    context = multiprocessing.get_context("fork")
    receiver, sender = context.Pipe(duplex=False)
    content, before = path.read_bytes(), case.read(path)
    child = context.Process(target=_try, args=(case, path, content, before, flips, apart, sender))
    child.start()
    sender.close()
    found: list[str] = []
    try:
        while True:
            found.append(receiver.recv())
    except EOFError:
        pass
    child.join()
    path.write_bytes(content)
    return found


def _try(
    case: Case, path: Path, content: bytes, before: Any, flips: Sequence[int], apart: bool, sender: Connection
) -> None:
    if not apart:
        isolation._forked = lambda read, arguments, limits: isolation._answer(read, arguments, _Unlimited(limits.bytes))
        pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[0])
        resource.setrlimit(resource.RLIMIT_AS, (pages * resource.getpagesize() + MEMORY,) * 2)
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    for number in flips:
        if not apart:
            signal.alarm(SECONDS)
        sender.send(outcome(case, path, content, before, number))


class _Unlimited(isolation._Limits):
    """Limits of a process that has set its own."""

    def __init__(self, most: int) -> None:
        super().__init__(most, 0)

    def apply(self) -> None:
        """Change nothing."""


def run(name: str, flips: int, *, first: int = 0, apart: bool = False) -> tuple[Counter[str], list[str], int]:
    """Count the outcomes of flips; return the problems and how often a process that read many files ended early."""
    case, ends = CASES[name], 0
    found: list[str] = []
    with tempfile.TemporaryDirectory() as folder:
        path = case.make(Path(folder))
        while len(found) < flips:
            found += tried(case, path, range(first + len(found), first + flips), apart=apart)
            if len(found) < flips:
                ends += 1
                if name in ("ledger", "result of a sweep"):
                    shutil.rmtree(folder, ignore_errors=True)
                    Path(folder).mkdir()
                    path = case.make(Path(folder))
                number = first + len(found)
                found += tried(case, path, [number], apart=True) or [f"crashed at flip {number}"]
    problems = [one for one in found if one.startswith(("raised", "crashed"))]
    if case.sealed:
        problems += [f"{one} at flip {first + k}" for k, one in enumerate(found) if one == "different"]
    return Counter(one.split()[0] for one in found), problems, ends


def main() -> int:
    """Print the outcomes of every format; the exit code is 1 if there is a problem."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--flips", type=int, default=300)
    parser.add_argument("--first", type=int, default=0, help="number of the first flip")
    parser.add_argument("--kinds", nargs="*", choices=CASES, default=list(CASES))
    asked = parser.parse_args()
    bad = 0
    for name in asked.kinds:
        begun = time.monotonic()
        counts, problems, ends = run(name, asked.flips, first=asked.first)
        bad += len(problems)
        told = ", ".join(f"{counts[word]} {word}" for word in OUTCOMES if counts[word])
        seconds = time.monotonic() - begun
        print(f"{name}: {told}; {ends} ended the reading process; {seconds:.0f} s", flush=True)
        for problem in problems[:5]:
            print(f"  {problem}", flush=True)
    return bool(bad)


if __name__ == "__main__":
    raise SystemExit(main())
