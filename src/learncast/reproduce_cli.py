"""The command `reproduce`: the figures of a paper."""

from __future__ import annotations

import json
import sys
import time
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer

from learncast._core.errors import InvalidSpec
from learncast._core.limits import allowing
from learncast._core.progress import duration, show_progress
from learncast.cli_values import read_shard, read_whole_numbers, read_words
from learncast.display import plural
from learncast.sweep_cli import RunOptions, exit_unless_done, show_sweep_progress, with_options


@partial(with_options, RunOptions)
def reproduce(
    paper: Annotated[str, typer.Argument(help="curriculum, linear-rnn, prior-knowledge or learnability.")],
    figure: Annotated[str | None, typer.Option(help="2A, or 4 for all its panels; all figures by default.")] = None,
    preset: Annotated[
        str | None, typer.Option(help="default, smoke or full; learnability: default, night, smoke or paper.")
    ] = None,
    out: Annotated[Path, typer.Option(metavar="DIR", help="Folder of figures and numbers.")] = Path("reproduced"),
    store: Annotated[
        list[Path] | None, typer.Option(metavar="DIR", help="Folders of the training runs; OUT-runs by default.")
    ] = None,
    shard: Annotated[str | None, typer.Option(metavar="K/N", help="Only train the K-th of N shards.")] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Report the missing runs and their cost.")] = False,
    formats: Annotated[str, typer.Option("--format", help="Formats of the figures, of png,pdf,svg.")] = "png",
    seeds: Annotated[str | None, typer.Option(help="Seeds of learnability, e.g. 212,1001.")] = None,
    cells: Annotated[str | None, typer.Option(help="Cells of learnability, e.g. const-gate,paper-gru.")] = None,
    stored: Annotated[
        bool, typer.Option("--stored", help="Draw the results of learnability that come with learncast.")
    ] = False,
    device: Annotated[str | None, typer.Option(help="Device of learnability: auto, cpu or cuda.")] = None,
    *,
    options: RunOptions,
) -> None:
    """Reproduce the figures of a paper, or our experiments on a paper without figures."""
    from learncast.sweep.reproduction import Reproduction, default_store

    if stored:
        _draw_stored(paper, figure, out, formats, options.as_json)
        return

    wanted: dict[str, Any] = {
        "figure": figure,
        "preset": preset,
        "shard": read_shard(shard),
        "seeds": None if seeds is None else read_whole_numbers("--seeds", seeds).tolist(),
        "cells": read_words(cells),
        "device": device,
    }
    # The first one checks the options before they name a store.
    preset = Reproduction(paper, **wanted, store=out).preset
    reproduction = Reproduction(paper, **wanted, store=store or default_store(paper, preset, out))
    workers = options.executor().workers
    if dry_run:
        _print_runs(reproduction.estimate(workers=workers), workers, options.as_json)
        return
    if paper == "learnability" and preset != "smoke" and reproduction.missing():
        cost = reproduction.estimate(workers=workers)
        print(f"learncast: {_missing_runs(cost, workers)}", file=sys.stderr, flush=True)
    with show_sweep_progress() as watcher, allowing(options.most_bytes):
        given: dict[str, Any] = {key: getattr(options, key) for key in ("fail_fast", "batch", "seconds")}
        trained = reproduction.train(executor=options.executor(), watcher=watcher, **given)
    if trained is not None:
        stopped = f"stopped after {trained.done} of {trained.total} runs; repeat the command to continue"
        exit_unless_done(trained, reproduction.stores[0], "runs", stopped=stopped)
    if shard is not None:
        print(f"The runs of shard {shard} are in {reproduction.stores[0]}; give all shards as --store to draw.")
        return
    begun = time.process_time()
    with show_progress("drawing") as progress:
        figures = reproduction.draw(out=out, progress=progress, formats=read_words(formats))
    figures["drawing_cpu_seconds"] = time.process_time() - begun
    _print_figures(figures, out, options.as_json)


def _draw_stored(paper: str, figure: str | None, out: Path, formats: str, as_json: bool) -> None:
    """Draw the results that come with a paper."""
    from learncast.papers import open_paper, reproduce

    compute = open_paper(paper).stored
    if compute is None:
        raise InvalidSpec(f"stored results exist for learnability, not for {paper}.", field="stored")
    with show_progress("drawing") as progress:
        chosen: dict[str, Any] = {"figure": figure, "out": out, "formats": read_words(formats), "compute": compute}
        _print_figures(reproduce(paper, **chosen, progress=progress), out, as_json)


def _print_figures(figures: dict[str, Any], out: Path, as_json: bool) -> None:
    """Print captions and numbers."""
    if as_json:
        print(json.dumps(figures, indent=2))
        return
    for name, entry in figures["figures"].items():
        print(f"{name}  {entry['caption']}")
        for key, value in entry["numbers"].items():
            print(f"    {key}: {value}")
    if "cpu_seconds" in figures:
        print(_cpu_time(figures["cpu_seconds"], figures["drawing_cpu_seconds"]))
    print(f"Figures and numbers are in {out}")


def _cpu_time(runs: float, drawing: float) -> str:
    unit, size = ("minutes", 60) if runs + drawing >= 60 else ("seconds", 1)
    return f"CPU {unit}: {(runs + drawing) / size:.1f} (runs {runs / size:.1f}, figures {drawing / size:.1f})"


def _missing_runs(cost: dict[str, Any], workers: int) -> str:
    cpu, wall = (duration(cost[key]) for key in ("cpu_seconds", "seconds"))
    runs = f"{cost['missing']} of {cost['runs']} runs are missing"
    return f"{runs}: about {cpu} of CPU time, {wall} with {plural(workers, 'worker')}"


def _print_runs(cost: dict[str, Any], workers: int, as_json: bool) -> None:
    """Print the cost of a reproduction."""
    if as_json:
        print(json.dumps({**cost, "workers": workers}))
        return
    if cost["failed"]:
        print(f"{cost['failed']} of {cost['pilot']} pilot runs failed:\n{cost['error'].strip()}")
    print(_missing_runs(cost, workers) if cost["missing"] else f"all {cost['runs']} runs are complete")
