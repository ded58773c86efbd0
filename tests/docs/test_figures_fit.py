"""Every figure is readable at the size of the gallery, of a report and of a phone."""

from __future__ import annotations

import contextlib
import doctest
import inspect
import io
from contextlib import nullcontext
from importlib.resources import files
from pathlib import Path

import matplotlib as mpl
import matplotlib.pyplot as plt
import numpy as np
import pytest
import xarray as xr
from gallery_figures import for_phone
from matplotlib.figure import Figure
from matplotlib.gridspec import GridSpec
from text_faults import faults

import learncast as lc
from learncast import figures
from learncast.figures.look import COLOURS
from learncast.figures.page import stacked
from learncast.papers import open_paper
from learncast.report.forecast import forecast_report
from learncast.report.forget import forget_report
from learncast.report.phase import phase_report
from learncast.report.plan import plan_report
from learncast.study import AdviceStudy, Study
from learncast.windows import Window

EXAMPLES = Path(__file__).parents[2] / "examples"
#: Width and height in inches.
SIZES = {"gallery": (6.0, 3.6), "report": (5.4, 3.8), "phone": (3.6, 2.7)}


def examples(name: str) -> list[doctest.Example]:
    return doctest.DocTestParser().get_examples(inspect.getdoc(getattr(figures, name)) or "")


#: Functions whose example draws a figure.
DRAWN = [
    name
    for name in figures.__all__
    if inspect.isfunction(getattr(figures, name)) and any("plt.subplots" in one.source for one in examples(name))
]
#: Figures that are drawn in every run of the fast tests.
QUICK = ("curriculum_paths", "forgetting_curves", "learning_curve", "loss_paths", "matrix", "portrait", "ranking")


@pytest.mark.parametrize("name", [pytest.param(n, marks=[] if n in QUICK else [pytest.mark.slow]) for n in DRAWN])
def test_a_figure_is_readable_at_every_size(name):
    """The figure is that of the example in the function's documentation."""
    known, found = {}, {}
    with figures.style(), mpl.rc_context({"figure.constrained_layout.use": True, "backend": "agg"}):
        for one in examples(name):
            if "plt.close" in one.source:
                for size, inches in SIZES.items():
                    known["figure"].set_size_inches(inches)
                    found[size] = faults(known["figure"])
            with contextlib.redirect_stdout(io.StringIO()):
                exec(compile(one.source, name, "single"), known)
    assert list(found) == list(SIZES)
    assert not any(found.values()), found


REPORTS = [
    (plan_report, "two_integration_tasks"),
    (forecast_report, "two_integration_tasks"),
    (forget_report, "revised_hierarchy"),
    pytest.param(plan_report, "rotated_readouts", marks=pytest.mark.slow),
    pytest.param(plan_report, "recorded_data", marks=pytest.mark.slow),
    pytest.param(plan_report, "pool_of_twenty", marks=pytest.mark.slow),
    pytest.param(plan_report, "composed_parts", marks=pytest.mark.slow),
    pytest.param(forecast_report, "learned_recurrence", marks=pytest.mark.slow),
    pytest.param(forecast_report, "recorded_data", marks=pytest.mark.slow),
]


@pytest.mark.parametrize(("report", "study"), REPORTS)
def test_the_figure_of_a_report_is_readable(report, study):
    assert drawn_faults(report(Study.load(EXAMPLES / f"{study}.toml"))) == ([], [])


def drawn_faults(report):
    """Faults of the figure on a wide page, and on a phone."""
    wide = faults(report.draw())
    with stacked():
        return wide, faults(report.draw())


def test_the_figure_of_a_portrait_is_readable():
    study = Study.load(EXAMPLES / "two_integration_tasks.toml")
    assert drawn_faults(phase_report(study, accuracies=np.linspace(0.02, 0.98, 49))) == ([], [])


def test_the_figure_of_a_window_is_readable():
    assert drawn_faults(Window.load(str(files("learncast.web") / "sample" / "window.nc")).report()) == ([], [])


def test_the_figure_of_held_out_losses_is_readable():
    rng = np.random.default_rng(0)
    x = rng.standard_normal((60, 5, 12))
    task = lc.Task.from_samples(x, x.sum(axis=1)[:, :2] + 3 * rng.standard_normal((60, 2)))
    network = lc.LinearRNN.random(12, 8, 2, recurrence=0.9, scale=0.1, rng=0)
    found = lc.generalise(task, network, learning_rate=0.01, most_steps=2000)
    assert drawn_faults(found.report()) == ([], [])


def test_the_figure_of_an_advice_is_readable():
    names = ["quick evidence to 90%, then the target", "both kinds of evidence together, then the target", "direct"]
    scores = xr.Dataset(
        {"score": ("plan", [0.8, 0.85, 1.0], {"long_name": "forecast time relative to training directly"})},
        coords={"plan": names},
    )
    for narrow in (nullcontext(), stacked()):
        with narrow:
            assert faults(figures.sheet(lambda ax: figures.plan_scores(scores, ax), width=7.0, height=4.0)) == []


@pytest.mark.slow
def test_the_figure_of_an_advice_for_an_example_is_readable():
    assert drawn_faults(lc.advise(**AdviceStudy.load(EXAMPLES / "decision_network.toml").question()).report()) == (
        [],
        [],
    )


@pytest.mark.slow
def test_the_figure_of_a_check_is_readable():
    # The curriculum and direct training, each with two seeds.
    task = lc.tasks.integration(steps=50)
    network = lc.LinearRNN.aligned(recurrence=0.96, initial=0.01, hidden_size=4)
    plan = lc.plan(task, [task.varied(target_strength=1.5).renamed("stronger")], network, learning_rate=1e-3)
    assert drawn_faults(lc.check(plan, seeds=2).report()) == ([], [])


#: The title of 6D has a second line that is much shorter than its first, whose box is beside it.
PAPER_FIGURES = [
    (name, figure)
    for name in ("curriculum", "prior-knowledge", "learnability")
    for figure in open_paper(name).selected(None, open_paper(name).presets[0])
    if (figure.name != "6D" if not figure.trained else name == "learnability")
]


@pytest.mark.slow
@pytest.mark.parametrize(("paper", "figure"), PAPER_FIGURES, ids=lambda one: getattr(one, "name", one))
def test_the_figure_of_a_paper_is_readable(paper, figure):
    stored = {"preset": open_paper(paper).presets[0], "compute": open_paper(paper).stored} if figure.trained else {}
    assert faults(figure.draw(figure.make(**stored))) == []


def test_enough_figures_are_drawn():
    assert len(DRAWN) > 45
    assert set(QUICK) < set(DRAWN)


def test_faults_of_legends_and_axis_titles_are_found():
    figure = Figure(figsize=(3, 2))
    ax = figure.add_axes((0.2, 0.2, 0.7, 0.7))
    ax.plot(np.linspace(0, 1, 9), label="curve")
    ax.legend(loc="upper right")
    assert faults(figure) == ["legend on the data of 'curve'"]
    ax.legend(loc="upper left")
    assert faults(figure) == []
    ax.legend(loc="upper center", bbox_to_anchor=(0.5, -0.05))
    ax.set_xlabel("x", labelpad=0)
    assert "legend on 'x'" in faults(figure)
    ax.legend(loc="upper left")
    ax.set_ylabel("a title that is longer than the axis is high")
    assert "'a title that is longer than the axis is high' is longer than its axis" in faults(figure)


@pytest.mark.parametrize("mark", ["guide line", "span"])
def test_a_legend_on_a_guide_line_or_on_a_span_of_full_width_is_found(mark):
    figure = Figure(figsize=(3, 2))
    ax = figure.add_axes((0.2, 0.2, 0.7, 0.7))
    ax.plot([0, 1, 2], [0.1, 0.1, 0.1], label="curve")
    if mark == "guide line":
        ax.axhline(0.8, label="goal")
    else:
        ax.axhspan(0.75, 0.85, alpha=0.4, label="learned")
    ax.set_ylim(0, 1)
    ax.legend(loc="upper right")
    assert faults(figure) == [f"legend on the data of {'goal' if mark == 'guide line' else 'a bar'!r}"]
    ax.legend(loc="center right")
    assert faults(figure) == []


def test_stacked_panels_without_numbers_are_found_and_the_phone_version_has_them():
    figure = Figure(figsize=(7, 4))
    axes = figure.subplots(2, 2, sharex=True, sharey=True)
    for ax in axes.flat:
        ax.plot([0, 1, 2], [0, 1, 0])
    assert faults(figure) == []
    for ax, place in zip(axes.flat, GridSpec(4, 1, figure=figure), strict=True):
        ax.set_subplotspec(place)
    assert faults(figure) == [f"the y axis of panel {k} has ticks without numbers" for k in (2, 4)]
    figure = Figure(figsize=(7, 4), layout="constrained")
    for ax in figure.subplots(2, 2, sharex=True, sharey=True).flat:
        ax.plot([0, 1, 2], [0, 1, 0])
    assert faults(for_phone(figure)) == []
    assert figure.axes[0].get_subplotspec().get_gridspec().ncols == 1


def test_a_marker_without_an_entry_in_the_legend_is_found():
    report = plan_report(Study.load(EXAMPLES / "two_integration_tasks.toml"))
    figure = report.draw()
    assert faults(figure) == []
    for ax in figure.axes:  # the star of the plan is in the legends of two panels
        if legend := ax.get_legend():
            handles = [one for one in legend.legend_handles if one.get_label() != "this plan"]
            ax.legend(handles=handles, bbox_to_anchor=(0.5, -0.3), loc="upper center") if handles else legend.remove()
    assert {fault for fault in faults(figure) if "marker" in fault} == {f"no legend names marker * in {COLOURS[7]}"}


def test_points_and_series_are_named_by_legends_texts_or_columns():
    figure = Figure(figsize=(4, 3))
    ax = figure.add_axes((0.2, 0.2, 0.7, 0.7))
    ax.scatter([1, 2, 3], [1, 2, 3], label="runs")
    assert faults(figure) == []  # the only series
    ax.plot([1, 2, 3], [1.2, 1, 2], color="red")
    assert len(faults(figure)) == 1
    ax.legend(loc="upper left")
    assert faults(figure) == []
    ax.get_legend().remove()
    ax.annotate("runs", (2, 2), xytext=(4, 0), textcoords="offset points")
    assert faults(figure) == []


@pytest.fixture(autouse=True)
def _closed():
    yield
    plt.close("all")
