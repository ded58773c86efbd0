"""The command line: a question about a study, an answer on stdout."""

from __future__ import annotations

import dataclasses
import math
import sys
import time
from collections.abc import Callable
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from learncast._core.errors import InvalidSpec
from learncast._core.limits import allowing
from learncast._core.packages import EXTRAS, torch_package
from learncast._core.progress import Progress, duration, shown, time_limit
from learncast.sweep_cli import (
    AsJson,
    RunOptions,
    command,
    exit_unless_done,
    parse_shard,
    show_progress,
    sweep_app,
    with_options,
)

if TYPE_CHECKING:
    from learncast.report.report import Report
    from learncast.study import Study

app = typer.Typer(
    name="learncast",
    help="Forecast how a network will learn, before you train it.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.add_typer(sweep_app)

StudyFile = Annotated[Path, typer.Argument(metavar="STUDY", help="Study file (TOML).", show_default=False)]
MethodName = Annotated[str, typer.Option("--method", help="auto, modes, two-layer, pooled, flow or responses.")]

#: Numbers in one range of an option.
MOST_NUMBERS = 10**6

#: What the explorer's page needs beyond the package's own requirements.


@dataclasses.dataclass(frozen=True)
class Delivery:
    """When an answer is delivered and how, as the last options of every question say it."""

    seconds: Annotated[
        float | None, typer.Option(help="Give up after so long, with the best so far where there is one.")
    ] = None
    as_json: AsJson = False
    out: Annotated[Path | None, typer.Option(metavar="DIR", help="Write JSON, NetCDF, PNG and report.html there.")] = (
        None
    )
    most_bytes: Annotated[
        float | None,
        typer.Option(help="Memory that one file, array or table may take; 2 GiB by default, 1 MiB a study."),
    ] = None
    strict: Annotated[bool, typer.Option("--strict", help="Exit 1 when a condition of the theory does not hold.")] = (
        False
    )

    def deliver(self, doing: str, answered: Callable[[Progress], Report]) -> None:
        """Report in time, write and print it; exit 1 when the theory or training says no."""
        with shown(doing) as progress, time_limit(self.seconds), allowing(self.most_bytes):
            answer = answered(progress)
        written = answer.write(self.out) if self.out is not None else []
        if self.as_json:
            print(answer.json())
        else:
            _print_answer(answer)
            if written:
                others = ", ".join(p.name for p in written if p.name != "report.html")
                print(f"\nReport: {self.out}/report.html  (with {others})")
        if self.strict and not answer.trust.holds:
            failed = ", ".join(a.name for a in answer.trust.failed)
            print(f"learncast: the theory does not hold here: {failed}", file=sys.stderr)
            raise typer.Exit(1)
        if not answer.passed:
            print("learncast: training differs from the forecast", file=sys.stderr)
            raise typer.Exit(1)


def _asked(path: Path, delivery: Delivery) -> Callable[[], Study]:
    """What builds the study of a file; its keys are checked here, before anything heavy loads."""
    from learncast.study.sections import StudySection
    from learncast.study.study_file import Given

    with allowing(delivery.most_bytes):
        given = Given.read(StudySection, path)

    def built() -> Study:
        from learncast.study import Study

        return Study(*given)

    return built


@command(app, example="forecast examples/two_integration_tasks.toml --times 0:400:5")
@partial(with_options, Delivery)
def forecast(
    study: StudyFile,
    task: Annotated[str | None, typer.Option(help="Forecast this candidate instead of the target.")] = None,
    times: Annotated[
        str | None, typer.Option(help="Steps to report, e.g. 0,100,300 or 0:500:11 (first:last:count).")
    ] = None,
    method: MethodName = "auto",
    *,
    delivery: Delivery,
) -> None:
    """How many steps until this network has learned this task, mode by mode?"""
    asked = _asked(study, delivery)
    from learncast.report.forecast import forecast_report as answer

    steps = None if times is None else _numbers("--times", times)
    delivery.deliver("forecasting", lambda _: answer(asked(), task=task, times=steps, method=method))


@command(app, example="plan examples/two_integration_tasks.toml --out demo")
@partial(with_options, Delivery)
def plan(
    study: StudyFile,
    remember: Annotated[
        str | None, typer.Option(help="Candidate not to forget: add what remembering it costs.")
    ] = None,
    method: MethodName = "auto",
    *,
    delivery: Delivery,
) -> None:
    """Which pretraining tasks help, in what order, and when do I stop them?"""
    asked = _asked(study, delivery)
    from learncast.report.plan import plan_report

    def report(progress: Progress) -> Report:
        return plan_report(asked(), remember=remember, method=method, progress=progress)

    delivery.deliver("searching plans", report)


@command(app, example="advise examples/decision_network.toml")
@partial(with_options, Delivery)
def advise(
    study: Annotated[
        Path | None,
        typer.Argument(metavar="[STUDY]", help="Study of a model and its trials (TOML).", show_default=False),
    ] = None,
    model: Annotated[
        str | None,
        typer.Option(metavar="FILE.py:FUNCTION", help="Your own: it returns advise's keywords; FILE.py is executed."),
    ] = None,
    pilot: Annotated[bool, typer.Option("--pilot", help="Race the shortlist on the real model.")] = False,
    seeds: Annotated[int | None, typer.Option(help="Most seeds of that race.")] = None,
    budget: Annotated[int | None, typer.Option(help="Gradient steps it may take altogether.")] = None,
    *,
    delivery: Delivery,
) -> None:
    """Which pretraining gets the network that I train to my goal soonest?"""
    if (study is None) == (model is None):
        raise InvalidSpec(
            required="either STUDY or --model must be given",
            got="both" if model is not None else "neither",
            why="one model is advised on",
            remedy="run `learncast advise study.toml`, or give --model FILE.py:FUNCTION",
        )
    if not pilot and (seeds is not None or budget is not None):
        raise InvalidSpec("--seeds and --budget belong to --pilot, got no --pilot.")
    if study is not None:
        from learncast.study.advice_study import AdviceStudySection
        from learncast.study.study_file import Given

        with allowing(delivery.most_bytes):
            given = Given.read(AdviceStudySection, study)
    torch_package("for advice")
    from learncast.report.advise import advised, stored_advice
    from learncast.study import AdviceStudy

    options: dict[str, Any] = {"pilot": pilot or None, "seeds": seeds, "budget": budget}

    def answered(progress: Progress) -> Report:
        if study is not None:
            return advised(AdviceStudy(*given), options=options, progress=progress)
        assert model is not None
        print(f"learncast: executing {model.rpartition(':')[0] or model}, with all your rights", file=sys.stderr)
        return stored_advice(model, options=options, progress=progress)

    delivery.deliver("weighing plans", answered)


@command(app, example="phase examples/two_integration_tasks.toml --vary target_strength --values 0.5:2:61")
@partial(with_options, Delivery)
def phase(
    study: Annotated[
        Path | None,
        typer.Argument(metavar="[STUDY]", help="Study file (TOML); an example without.", show_default=False),
    ] = None,
    vary: Annotated[
        str | None, typer.Option(help="Keyword of the target's family; target_strength or timescale by default.")
    ] = None,
    values: Annotated[
        str | None,
        typer.Option(help="What it takes: 0.5,0.75 or 0.1:2.0:200 (first:last:count); around its own by default."),
    ] = None,
    accuracies: Annotated[str, typer.Option(help="Stops of the first task: 0.1,0.3 or 0.01:0.99:99.")] = (
        "0.02:0.98:49"
    ),
    method: MethodName = "auto",
    *,
    delivery: Delivery,
) -> None:
    """Where in parameter space does pretraining pay?"""
    if study is None:
        from importlib.resources import files

        study = Path(str(files("learncast.study").joinpath("templates", "plan.toml")))
        print("learncast: no study was given; this is the one that `learncast new plan FILE` writes", file=sys.stderr)
    asked = _asked(study, delivery)
    from learncast.report.phase import phase_report

    taken = None if values is None else _numbers("--values", values)
    stops = _numbers("--accuracies", accuracies)

    def answered(progress: Progress) -> Report:
        return phase_report(asked(), vary=vary, values=taken, accuracies=stops, method=method, progress=progress)

    delivery.deliver("timing curricula", answered)


@command(app, example="forget examples/revised_hierarchy.toml")
@partial(with_options, Delivery)
def forget(study: StudyFile, method: MethodName = "auto", *, delivery: Delivery) -> None:
    """What will be forgotten when I train on the next task?"""
    asked = _asked(study, delivery)
    from learncast.report.forget import forget_report

    delivery.deliver("forgetting", lambda _: forget_report(asked(), method=method))


@command(app, example="check examples/two_integration_tasks.toml --seeds 3")
@partial(with_options, Delivery)
def check(
    study: StudyFile,
    seeds: Annotated[int, typer.Option(help="Training runs of every plan.")] = 5,
    network: Annotated[str | None, typer.Option(help="linear, relu or tanh units instead of the study's own.")] = None,
    tolerance: Annotated[
        float | None, typer.Option(help="Share by which steps may differ; 0.05, or 0.1 beyond linear.")
    ] = None,
    processes: Annotated[int | None, typer.Option(help="Training runs at a time.")] = None,
    *,
    delivery: Delivery,
) -> None:
    """Is the theory right here? Train for real beside the forecast; exit 1 when they differ."""
    asked = _asked(study, delivery)
    from learncast._core.validation import one_of
    from learncast.report.check import check_report

    torch_package("for a check")
    if network is not None:
        one_of("--network", network, ("linear", "relu", "tanh"))

    def answered(progress: Progress) -> Report:
        own = asked() if network is None else asked().activated(network)
        return check_report(own, seeds=seeds, tolerance=tolerance, processes=processes, progress=progress)

    delivery.deliver("training", answered)


@command(app, example="window examples/multi_lag_window.toml")
@partial(with_options, Delivery)
def window(
    study: Annotated[
        Path | None, typer.Argument(metavar="[STUDY]", help="Study of a built-in cell (TOML).", show_default=False)
    ] = None,
    model: Annotated[
        str | None, typer.Option(metavar="FILE.py:FUNCTION", help="Your own model; FILE.py is executed.")
    ] = None,
    weights: Annotated[Path | None, typer.Option(help="Its weights, .safetensors or .pt.")] = None,
    checkpoints: Annotated[
        str | None, typer.Option(metavar="PATTERN", help="Its weights while it trained, e.g. 'runs/*.pt', in quotes.")
    ] = None,
    data: Annotated[Path | None, typer.Option(help="Sequences, .npz with inputs and targets.")] = None,
    optimizer_state: Annotated[Path | None, typer.Option(help="State of its optimiser, .pt or .safetensors.")] = None,
    optimizer: Annotated[
        str | None, typer.Option(help="sgd, adam, adamw or rmsprop, if FUNCTION returns none.")
    ] = None,
    learning_rate: Annotated[float | None, typer.Option(help="Of that optimiser.")] = None,
    lags: Annotated[str | None, typer.Option(help="Lags to look at, e.g. 1,2,4 or 4:64:16.")] = None,
    sample_sizes: Annotated[str | None, typer.Option(help="Numbers of sequences, likewise.")] = None,
    method: Annotated[str | None, typer.Option(help="sound (default) or paper.")] = None,
    *,
    delivery: Delivery,
) -> None:
    """How far back can this model learn, and from how many sequences?"""
    own: dict[str, Any] = {"data": data, "optimizer": optimizer, "learning_rate": learning_rate}
    files: dict[str, Any] = {"weights": weights, "checkpoints": checkpoints, "optimizer_state": optimizer_state}
    options: dict[str, Any] = {"method": method}
    for key, text in (("lags", lags), ("sample_sizes", sample_sizes)):
        options[key] = None if text is None else _whole_numbers(f"--{key.replace('_', '-')}", text)
    _check_window_source(study, model, {**files, **own}, options)
    if study is not None:
        from learncast.study.sections import WindowStudySection
        from learncast.study.study_file import Given

        with allowing(delivery.most_bytes):
            given = Given.read(WindowStudySection, study)
    torch_package("for a learnability window")
    from learncast.report.window import OwnModel, evolving_window, rehearsed_window, stored_window
    from learncast.study import WindowStudy

    def answered(progress: Progress) -> Report:
        if study is not None:
            return rehearsed_window(WindowStudy(*given), progress=progress)
        assert model is not None
        print(f"learncast: executing {model.rpartition(':')[0] or model}, with all your rights", file=sys.stderr)
        asked = OwnModel(model, **own, options=options)
        if checkpoints is not None:
            return evolving_window(asked, checkpoints=checkpoints, progress=progress)
        assert weights is not None
        return stored_window(asked, weights=weights, optimizer_state=optimizer_state, progress=progress)

    delivery.deliver("diagnosing", answered)


def _check_window_source(study: Path | None, model: str | None, own: dict[str, Any], options: dict[str, Any]) -> None:
    """Exactly one of a study and a model, and nothing that would be ignored."""
    given = [key for key, value in {**own, **options}.items() if value is not None]
    if (study is None) == (model is None):
        raise InvalidSpec(
            required="either STUDY or --model must be given",
            got="both" if model is not None else "neither",
            why="one model is diagnosed",
            remedy="run `learncast window study.toml`, or give --model, --weights (or --checkpoints) and --data",
        )
    if study is not None and given:
        raise InvalidSpec(
            f"a study must say everything itself, got --{given[0].replace('_', '-')}. Write it into the "
            "study, or use --model."
        )
    many = own["checkpoints"] is not None
    for key, why in (("weights", "one state is diagnosed or many"), ("optimizer_state", "each file has its own")):
        if many and own[key] is not None:
            raise InvalidSpec(
                f"--checkpoints must be given without --{key.replace('_', '-')}, got both. Leave one out; a "
                f'checkpoint may hold {{"model": ..., "optimizer": ...}}.'
            )
    missing = [key for key in ("weights", "data") if own[key] is None and not (many and key == "weights")]
    if model is not None and missing:
        raise InvalidSpec(f"--model needs --{missing[0]}, got none.")


def _whole_numbers(option: str, text: str) -> Any:
    """Distinct whole numbers near those of a list or range."""
    import numpy as np

    numbers = _numbers(option, text)
    found = numbers.round() if ":" in text else numbers
    if not np.isfinite(found).all() or (found != found.round()).any():
        raise InvalidSpec(f"{option} must be whole numbers, got {text!r}.")
    return np.unique(found).astype(np.int64)


@command(app, example="reproduce curriculum --figure 2A")
@partial(with_options, RunOptions)
def reproduce(
    paper: Annotated[str, typer.Argument(help="Which paper: curriculum, linear-rnn, prior-knowledge or learnability.")],
    figure: Annotated[str | None, typer.Option(help="One figure, e.g. 2A or all of 4; every one by default.")] = None,
    preset: Annotated[
        str, typer.Option(help="smoke or full (learnability: smoke, laptop or paper): how much is trained.")
    ] = "smoke",
    out: Annotated[Path, typer.Option(metavar="DIR", help="Where figures and numbers go.")] = Path("reproduced"),
    store: Annotated[
        list[Path] | None,
        typer.Option(metavar="DIR", help="Where runs are kept and gone on from, OUT-runs by default; all shares'."),
    ] = None,
    shard: Annotated[
        str | None, typer.Option(metavar="K/N", help="Only the K-th of N shares; nothing is drawn.")
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Say what is missing and what it would take.")] = False,
    formats: Annotated[str, typer.Option("--format", help="Of pictures: png, pdf and svg, separated by commas.")] = (
        "png,pdf,svg"
    ),
    seeds: Annotated[str | None, typer.Option(help="Of learnability's networks, e.g. 212,1001.")] = None,
    cells: Annotated[str | None, typer.Option(help="Of learnability, e.g. const-gate,paper-gru.")] = None,
    device: Annotated[str | None, typer.Option(help="Where learnability trains: auto, cpu or cuda.")] = None,
    optimum: Annotated[
        str | None, typer.Option(help="Where curriculum's ReLU runs stop: response (ours) or trained (the paper's).")
    ] = None,
    *,
    options: RunOptions,
) -> None:
    """Make a paper's figures, or our experiments on the claims of one without figures, with their numbers."""
    from learncast.sweep.reproduction import Reproduction, default_store

    listed = {"seeds": None if seeds is None else _whole_numbers("--seeds", seeds).tolist(), "cells": _words(cells)}
    wanted: dict[str, Any] = {"figure": figure, "preset": preset, "shard": parse_shard(shard)}
    wanted |= {**listed, "device": device, "optimum": optimum}
    Reproduction(paper, **wanted, store=out)  # nothing is asked of a paper that has not got it
    reproduction = Reproduction(paper, **wanted, store=store or default_store(paper, preset, out))
    workers = options.executor().workers
    if dry_run:
        _print_runs(reproduction.estimate(workers=workers), workers, options.as_json)
        return
    if preset == "paper" and reproduction.missing():
        found = reproduction.estimate(workers=workers)
        print(f"learncast: {_runs_left(found, workers)}", file=sys.stderr, flush=True)
    with show_progress() as watcher:
        given: dict[str, Any] = {key: getattr(options, key) for key in ("fail_fast", "batch", "seconds")}
        with allowing(options.most_bytes):
            made = reproduction.train(executor=options.executor(), watcher=watcher, **given)
    if made is not None:
        stopped = f"stopped after {made.done} of {made.total} runs; the same command goes on"
        exit_unless_done(made, reproduction.stores[0], "runs", stopped=stopped)
    if shard is not None:
        print(f"The runs of share {shard} are in {reproduction.stores[0]}; give all shares as --store to draw.")
        return
    begun = time.process_time()
    with shown("drawing") as progress:
        drawn = reproduction.draw(out=out, progress=progress, formats=_words(formats))
    drawn["drawing_cpu_seconds"] = time.process_time() - begun
    if options.as_json:
        import json

        print(json.dumps(drawn, indent=2))
        return
    for name, entry in drawn["figures"].items():
        print(f"{name}  {entry['caption']}")
        for key, value in entry["numbers"].items():
            print(f"    {key}: {value}")
    print(_time_taken(drawn["cpu_seconds"], drawn["drawing_cpu_seconds"]))
    print(f"Figures and numbers are in {out}")


def _time_taken(runs: float, figures: float) -> str:
    unit, size = ("minutes", 60) if runs + figures >= 60 else ("seconds", 1)
    whole, runs, figures = (part / size for part in (runs + figures, runs, figures))
    return f"CPU {unit}: {whole:.1f}, of which runs {runs:.1f} and figures {figures:.1f}"


def _words(text: str | None) -> list[str] | None:
    return None if text is None else [word.strip() for word in text.split(",") if word.strip()]


def _runs_left(found: dict[str, Any], workers: int) -> str:
    cpu, wall = (duration(found[key]) for key in ("cpu_seconds", "seconds"))
    return (
        f"{found['missing']} of {found['runs']} runs are missing, about {cpu} of one processor: {wall} with {workers} "
        "at a time"
    )


def _print_runs(found: dict[str, Any], workers: int, as_json: bool) -> None:
    """What a reproduction would take."""
    if as_json:
        import json

        print(json.dumps({**found, "workers": workers}))
        return
    if found["failed"]:
        print(f"{found['failed']} of {found['pilot']} tried runs failed:\n{found['error'].strip()}")
    print(_runs_left(found, workers) if found["missing"] else f"all {found['runs']} runs are there")


@command(app, example="explore")
def explore(
    port: Annotated[int, typer.Option(help="Port to listen on; 0 takes any that is free.")] = 8765,
    host: Annotated[
        str, typer.Option(help="Address to listen on; any but the default may let others in.")
    ] = "127.0.0.1",
    window: Annotated[
        Path | None, typer.Option(metavar="FILE.nc", help="A saved learnability window to look at.")
    ] = None,
    no_browser: Annotated[bool, typer.Option("--no-browser", help="Print the address and open nothing.")] = False,
    most_bytes: Annotated[
        float | None, typer.Option(help="Memory that the window's file may take; 2 GiB by default.")
    ] = None,
    export: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="Serve nothing: write the page and its examples there, for any web server."),
    ] = None,
) -> None:
    """What would this network do, if I moved this slider?"""
    missing = [name for name in EXTRAS["web"] if find_spec(name) is None]
    if missing:
        raise InvalidSpec(f"the explorer's packages must be installed, got no {' and no '.join(missing)}.")
    if export is not None:
        from learncast.web.export import export_site

        with shown("answering the guided examples") as progress:
            export_site(export, progress)
        print(f"Wrote {export}; show it with any web server: python -m http.server --directory {export}")
        return
    from learncast.web.app import serve

    serve(host, port, window, browse=not no_browser, most_bytes=most_bytes)


@command(app, example="new recordings mine.toml")
def new(
    kind: Annotated[str, typer.Argument(help="plan, forget, window, sweep or recordings.")],
    file: Annotated[Path, typer.Argument(metavar="FILE", help="Where to write it; nothing is overwritten.")],
) -> None:
    """A commented study to begin with, which runs as it is."""
    from learncast.study.beginning import begin

    for path in begin(kind, file):
        print(path)
    asked = {"sweep": "sweep run", "recordings": "plan"}.get(kind, kind)
    print(f"Ask it: learncast {asked} {file}")


@command(app, example="schema --keys")
def schema(
    kind: Annotated[str, typer.Argument(help="study; window or advice for the studies of those commands.")] = "study",
    keys: Annotated[bool, typer.Option("--keys", help="List the keys in words instead.")] = False,
) -> None:
    """Every key of a study file: its JSON schema, for editors, or a list."""
    import json

    from learncast.study import schema as described

    if not keys:
        print(json.dumps(described.schema(kind), indent=2))
        return
    table = None
    for key in described.keys(kind):
        if key.table != table:
            table = key.table
            print(f"{table}" if table is key.table and not table else f"\n{table}")
        default = "must be given" if key.required else f"default {key.default}" if key.default else "may be left out"
        print(f"  {key.name}: {key.type}; {default}. {key.meaning}")


@command(app, example="explain examples/two_integration_tasks.toml")
def explain(study: StudyFile, method: MethodName = "auto", as_json: AsJson = False) -> None:
    """What does this study say, which way will it be answered, why, and what will that cost?"""
    import json

    asked = _asked(study, Delivery())
    from learncast.report.explain import explain_study, explanation_text
    from learncast.report.report import plain

    own = asked()
    found = explain_study(own, method=method)
    print(json.dumps(plain(found), indent=2) if as_json else explanation_text(own, found))


@command(app, example="version")
def version() -> None:
    """Print the version."""
    from learncast import __version__

    print(__version__)


def _print_answer(answer: Report) -> None:
    from rich.console import Console
    from rich.padding import Padding
    from rich.text import Text

    class Patient(Console):
        """A console whose reader may leave early, as with `| head`."""

        def on_broken_pipe(self) -> None:
            _let_go()

    console = Patient()
    console.print(Text(answer.title, style="bold"))
    console.print(Padding(Text(answer.lead), (0, 0, 1, 0)))
    for table in answer.every_table:
        _print_table(console, table)
    console.print(Text(answer.footer))
    for assumption in answer.trust.failed:
        console.print(Text(str(assumption.violation()), style="bold red"))


def _let_go() -> None:
    """End quietly when nobody reads on."""
    import os

    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    raise SystemExit(0)


def _print_table(console: Any, table: Any) -> None:
    from rich import box
    from rich.table import Table
    from rich.text import Text

    # Text throughout: names come from people and may look like markup.
    rich = Table(title=Text(table.title), title_justify="left", title_style="bold", box=box.SIMPLE_HEAD, pad_edge=False)
    for k, column in enumerate(table.columns):
        words = k == 0 or column in ("why", "status")
        rich.add_column(Text(column), justify="left" if words else "right", overflow="fold")
    for row in table.rows:
        rich.add_row(*(Text(cell) for cell in row))
    console.print(rich)
    for note in table.notes:
        console.print(Text(note, style="dim"))
    if table.notes:
        console.print()


def _numbers(option: str, text: str) -> Any:
    """Read 0.5,0.75 or first:last:count."""
    import numpy as np

    try:
        return _range(*text.split(":")) if ":" in text else np.array([float(word) for word in text.split(",")])
    except ValueError as error:
        ranged = f"write first:last:count, with finite ends and a count from 1 to {MOST_NUMBERS:,}"
        raise InvalidSpec(
            f"{option} must be numbers like 0.5,0.75 or a range first:last:count like 0.1:2.0:200, got "
            f"{text!r} ({error})."
        ) from error


def _range(first: str, last: str, *counts: str) -> Any:
    import numpy as np

    if len(counts) != 1:
        raise ValueError("too many colons" if counts else "the count is missing")
    if not all(math.isfinite(float(end)) for end in (first, last)):
        raise ValueError("a range must be finite")
    # Refused before it is made: a mistyped count must not exhaust memory.
    if not (counts[0].strip().isdecimal() and 1 <= int(counts[0]) <= MOST_NUMBERS):
        raise ValueError(f"a count of {counts[0]}")
    return np.linspace(float(first), float(last), int(counts[0]))


def main() -> None:
    """Run the command line."""
    try:
        app()
        sys.stdout.flush()
    except BrokenPipeError:
        _let_go()


if __name__ == "__main__":
    main()
