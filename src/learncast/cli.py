"""The command line: questions about a study, answers on stdout."""

from __future__ import annotations

import dataclasses
import json
import sys
from collections.abc import Callable
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from learncast._core.errors import InvalidSpec
from learncast._core.packages import EXTRAS, install, torch_package
from learncast._core.progress import Progress, show_progress
from learncast.cli_delivery import Delivery, exit_quietly
from learncast.cli_values import read_numbers, read_whole_numbers
from learncast.reproduce_cli import reproduce
from learncast.sweep_cli import command, sweep_app, with_options

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
DataOrStudy = Annotated[
    Path, typer.Argument(metavar="STUDY|DATA", help="Study file (TOML), or trials: .npz, .csv, .mat, .nwb, .nc ...")
]
OptionalStudy = Annotated[Path | None, typer.Argument(metavar="[STUDY]", help="Study file (TOML).", show_default=False)]
MethodName = Annotated[str, typer.Option("--method", help="auto, modes, two-layer, pooled, deep, flow or responses.")]


def _asked(path: Path, delivery: Delivery, *, data: bool = False) -> Callable[[], Study]:
    """Check the keys of a study now; return a function that imports what it needs and builds it."""
    from learncast.study.sections import StudySection

    section, folder, source = delivery.read(StudySection, path, data=data)

    def build() -> Study:
        from learncast.study import Study

        return Study(section, folder, source)

    return build


@command(app, example="forecast examples/two_integration_tasks.toml --times 0:400:5")
@partial(with_options, Delivery)
def forecast(
    study: DataOrStudy,
    task: Annotated[str | None, typer.Option(help="Candidate to forecast instead of the target.")] = None,
    times: Annotated[
        str | None, typer.Option(help="Steps to report, e.g. 0,100,300 or 0:500:11 (first:last:count).")
    ] = None,
    method: MethodName = "auto",
    learning_rate: Annotated[float | None, typer.Option(help="Short for --set training.learning_rate=...")] = None,
    *,
    delivery: Delivery,
) -> None:
    """How many steps does this network need to learn this task?"""
    if learning_rate is not None:
        changes = [*(delivery.changes or ()), f"training.learning_rate={learning_rate!r}"]
        delivery = dataclasses.replace(delivery, changes=changes)
    asked = _asked(study, delivery, data=True)
    from learncast.report.forecast import forecast_report as answer

    steps = None if times is None else read_numbers("--times", times)
    delivery.deliver("forecasting", lambda _: answer(asked(), task=task, times=steps, method=method))


@command(app, example="plan examples/two_integration_tasks.toml --out demo")
@partial(with_options, Delivery)
def plan(
    study: StudyFile,
    remember: Annotated[str | None, typer.Option(help="Candidate to remember; its cost is reported.")] = None,
    method: MethodName = "auto",
    held_out: Annotated[
        bool, typer.Option("--held-out", help="Choose stops for the held-out loss, not speed.")
    ] = False,
    *,
    delivery: Delivery,
) -> None:
    """Which tasks should I train first, and when should I stop them?"""
    asked = _asked(study, delivery)
    from learncast.report.plan import plan_report

    ask = partial(plan_report, remember=remember, method=method, held_out=held_out)
    delivery.deliver("searching plans", lambda p: ask(asked(), progress=p))


@command(app, example="advise examples/decision_network.toml")
@partial(with_options, Delivery)
def advise(
    study: OptionalStudy = None,
    model: Annotated[
        str | None, typer.Option(metavar="FILE.py:FUNCTION", help="Returns advise's keywords; FILE.py is executed.")
    ] = None,
    train: Annotated[bool, typer.Option("--train", help="Also train a copy of the model as advised.")] = False,
    most_steps: Annotated[int | None, typer.Option(help="Steps after which a stage is given up (20,000).")] = None,
    *,
    delivery: Delivery,
) -> None:
    """How do I train my own network on this target soonest?"""
    _check_one_source(study, model, delivery)
    if study is not None:
        from learncast.study.advice_sections import AdviceStudySection

        given = delivery.read(AdviceStudySection, study)
    torch_package("for advice")
    from learncast.report.advise import advise_report, model_advise_report
    from learncast.study import AdviceStudy

    def answered(progress: Progress) -> Report:
        if model is None:
            return advise_report(AdviceStudy(*given), train=train, most_steps=most_steps, progress=progress)
        _warn_of_execution(model)
        return model_advise_report(model, train=train, most_steps=most_steps, progress=progress)

    delivery.deliver("trying learning rates", answered)


def _check_one_source(study: Path | None, model: str | None, delivery: Delivery) -> None:
    if (study is None) == (model is None):
        got = "neither" if model is None else "both"
        raise InvalidSpec(f"exactly one of STUDY and --model must be given, got {got}.", field="model")
    if model is not None and delivery.changes:
        raise InvalidSpec("--set changes keys of a study. Change FILE.py instead.", field="set")


def _warn_of_execution(model: str) -> None:
    from learncast.windows.stored_model import located

    print(f"learncast: executing {located(model)[0]} with your permissions", file=sys.stderr)


@command(app, example="phase examples/two_integration_tasks.toml --vary target_strength --values 0.5:2:61")
@partial(with_options, Delivery)
def phase(
    study: OptionalStudy = None,
    vary: Annotated[
        str | None, typer.Option(help="Parameter to vary; target_strength or timescale by default.")
    ] = None,
    values: Annotated[
        str | None, typer.Option(help="Its values: 0.5,0.75 or 0.1:2.0:200; around the target's by default.")
    ] = None,
    accuracies: Annotated[str, typer.Option(help="Accuracies at which the first task stops.")] = "0.02:0.98:49",
    method: MethodName = "auto",
    *,
    delivery: Delivery,
) -> None:
    """For which task parameters does pretraining help?"""
    if study is None:
        from learncast.study.template import template_path

        study = template_path("plan")
        print("learncast: no study given; using the one that `learncast new plan FILE` writes", file=sys.stderr)
    asked = _asked(study, delivery)
    from learncast.report.phase import phase_report

    varied, stops = (
        None if values is None else read_numbers("--values", values),
        read_numbers("--accuracies", accuracies),
    )
    ask = partial(phase_report, vary=vary, values=varied, accuracies=stops, method=method)
    delivery.deliver("timing curricula", lambda progress: ask(asked(), progress=progress))


@command(app, example="forget examples/revised_hierarchy.toml")
@partial(with_options, Delivery)
def forget(study: StudyFile, method: MethodName = "auto", *, delivery: Delivery) -> None:
    """What is forgotten when I train the next task?"""
    asked = _asked(study, delivery)
    from learncast.report.forget import forget_report

    delivery.deliver("forgetting", lambda _: forget_report(asked(), method=method))


@command(app, example="generalise examples/sequential_digits.toml")
@partial(with_options, Delivery)
def generalise(
    study: DataOrStudy,
    test: Annotated[Path | None, typer.Option(metavar="FILE", help="Held-out trials, instead of folds.")] = None,
    most_steps: Annotated[int | None, typer.Option(help="Last step.")] = None,
    after: Annotated[str | None, typer.Option(help="Candidate on which the network is trained first.")] = None,
    *,
    delivery: Delivery,
) -> None:
    """When does it overfit, and are my trials enough?"""
    asked = _asked(study, delivery, data=True)
    from learncast.report.generalise import generalise_report

    ask = partial(generalise_report, test=test, most_steps=most_steps, after=after)
    delivery.deliver("holding out trials", lambda _: ask(asked()))


@command(app, example="check examples/two_integration_tasks.toml --seeds 3")
@partial(with_options, Delivery)
def check(
    study: DataOrStudy,
    seeds: Annotated[int, typer.Option(help="Training runs of every plan.")] = 5,
    network: Annotated[str | None, typer.Option(help="linear, relu or tanh units instead of the study's.")] = None,
    tolerance: Annotated[
        float | None, typer.Option(help="Largest relative difference in steps; 0.05, or 0.1 for nonlinear units.")
    ] = None,
    processes: Annotated[int | None, typer.Option(help="Number of processes.")] = None,
    *,
    delivery: Delivery,
) -> None:
    """Does real training agree with the forecast? Exit 1 if it differs."""
    asked = _asked(study, delivery, data=True)
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
    study: OptionalStudy = None,
    model: Annotated[
        str | None, typer.Option(metavar="FILE.py:FUNCTION", help="Returns your model; FILE.py is executed.")
    ] = None,
    weights: Annotated[Path | None, typer.Option(help="Its weights, .safetensors or .pt.")] = None,
    data: Annotated[Path | None, typer.Option(help="Sequences, .npz with inputs and targets.")] = None,
    optimizer_state: Annotated[Path | None, typer.Option(help="State of its optimiser, .pt.")] = None,
    optimizer: Annotated[str | None, typer.Option(help="sgd, adam, adamw or rmsprop; FUNCTION's by default.")] = None,
    learning_rate: Annotated[float | None, typer.Option(help="Learning rate of that optimiser.")] = None,
    lags: Annotated[str | None, typer.Option(help="Lags to diagnose, e.g. 1,2,4 or 4:64:16.")] = None,
    sample_sizes: Annotated[str | None, typer.Option(help="Numbers of sequences, in the same form.")] = None,
    method: Annotated[str | None, typer.Option(help="sound (default) or paper.")] = None,
    control: Annotated[bool, typer.Option("--control", help="Find out which lags are due to the task.")] = False,
    *,
    delivery: Delivery,
) -> None:
    """How far back does the gradient of my LSTM or GRU carry a signal?"""
    own: dict[str, Any] = {"weights": weights, "optimizer_state": optimizer_state, "data": data}
    own |= {"optimizer": optimizer, "learning_rate": learning_rate}
    options: dict[str, Any] = {"method": method, "control": control or None}
    for key, text in (("lags", lags), ("sample_sizes", sample_sizes)):
        options[key] = None if text is None else read_whole_numbers(_option(key), text)
    _check_one_source(study, model, delivery)
    _check_window_options(study, model, {**own, **options})
    if study is not None:
        from learncast.study.window_sections import WindowStudySection

        given = delivery.read(WindowStudySection, study)
    torch_package("for a learnability window")
    from learncast.report.window import model_window_report, window_report
    from learncast.study import WindowStudy

    def answered(progress: Progress) -> Report:
        if model is None:
            return window_report(WindowStudy(*given), progress=progress)
        _warn_of_execution(model)
        return model_window_report(model, options=options, **own, progress=progress)

    delivery.deliver("diagnosing", answered)


def _option(key: str) -> str:
    return f"--{key.replace('_', '-')}"


def _check_window_options(study: Path | None, model: str | None, options: dict[str, Any]) -> None:
    """Raise for an option that is missing or would be ignored."""
    given = [key for key, value in options.items() if value is not None]
    if study is not None and given:
        raise InvalidSpec(f"{_option(given[0])} needs --model; write it into the study instead.", field=given[0])
    if model is not None:
        for key in ("weights", "data"):
            if key not in given:
                raise InvalidSpec(f"--model needs {_option(key)}.", field=key)


command(app, "reproduce", example="reproduce curriculum --figure 2A")(reproduce)


@command(app, example="explore")
def explore(
    port: Annotated[int, typer.Option(help="Port; 0 for any free one.")] = 8765,
    host: Annotated[str, typer.Option(help="Address; any but the default may be reachable by others.")] = "127.0.0.1",
    window: Annotated[Path | None, typer.Option(metavar="FILE.nc", help="A saved learnability window to show.")] = None,
    no_browser: Annotated[bool, typer.Option("--no-browser", help="Print the address; do not open a browser.")] = False,
    most_bytes: Annotated[float | None, typer.Option(help="Memory limit of that file; 2 GiB by default.")] = None,
    export: Annotated[Path | None, typer.Option(metavar="DIR", help="Write a static page there instead.")] = None,
) -> None:
    """Explore the theory interactively in a browser."""
    missing = [name for name in EXTRAS["web"] if find_spec(name) is None]
    if missing:
        raise InvalidSpec(f"the explorer needs {' and '.join(missing)}: {install('web')}.", field=missing[0])
    if export is not None:
        from learncast.web.app import open_window
        from learncast.web.export import export_site

        opened = None if window is None else open_window(window, most_bytes)
        with show_progress("computing the examples") as progress:
            export_site(export, progress, window=opened)
        print(f"Wrote {export}; serve it with: python -m http.server --directory {export}")
        return
    from learncast.web.app import serve

    serve(host, port, window, browse=not no_browser, most_bytes=most_bytes)


@command(app, example="new recordings mine.toml")
def new(
    kind: Annotated[str, typer.Argument(help="plan, forget, window, sweep, recordings or advise.")],
    file: Annotated[Path, typer.Argument(metavar="FILE", help="File to write; it must not exist.")],
) -> None:
    """Write a commented template of a study."""
    from learncast.study import new_study

    for path in new_study(kind, file):
        print(path)
    question = {"sweep": "sweep run", "recordings": "plan"}.get(kind, kind)
    print(f"Run: learncast {question} {file}")


@command(app, example="schema --keys")
def schema(
    kind: Annotated[str, typer.Argument(help="Kind of study: study, window or advice.")] = "study",
    keys: Annotated[bool, typer.Option("--keys", help="List the keys as text instead.")] = False,
) -> None:
    """Print the JSON schema of study files, for editors, or list their keys."""
    from learncast.study import schema as study_schema

    if not keys:
        print(json.dumps(study_schema.schema(kind), indent=2))
        return
    table = ""
    for key in study_schema.keys(kind):
        if key.table != table:
            table = key.table
            print(f"\n{table}")
        default = "required" if key.required else f"default {key.default}" if key.default else "optional"
        print(f"  {key.name}: {key.type}; {default}. {key.meaning}")


@command(app, example="version")
def version() -> None:
    """Print the version."""
    from learncast import __version__

    print(__version__)


def _print_version(wanted: bool) -> None:
    if wanted:
        version()
        raise typer.Exit


@app.callback()
def _main(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """Forecast how a network will learn, before you train it."""


def main() -> None:
    """Run the command line."""
    try:
        app()
        sys.stdout.flush()
    except BrokenPipeError:
        exit_quietly()


if __name__ == "__main__":
    main()
