"""Every script of the tutorials and the gallery runs without a warning and draws figures whose texts can be read."""

from __future__ import annotations

import runpy
from pathlib import Path

import matplotlib as mpl
import pytest
from gallery_figures import PHONE, apply_style, for_phone, save_versions, versions
from matplotlib.figure import Figure
from text_faults import faults

from learncast.figures import style
from learncast.figures.look import read_tokens

DOCS = Path(__file__).parents[2] / "docs"
SCRIPTS = sorted(DOCS.glob("gallery/*/plot_*.py")) + sorted(DOCS.glob("tutorials/plot_*.py"))
#: Scripts of the fast suite: a quick one from each part of the gallery.
QUICK = ("plot_03_paths", "plot_14_hierarchy", "plot_20_late_first", "plot_25_batches")


def cases():
    for script in SCRIPTS:
        yield pytest.param(script, id=script.stem, marks=[] if script.stem in QUICK else [pytest.mark.slow])


def test_the_gallery_has_twenty_examples_and_there_are_eight_lessons():
    folders = [script.relative_to(DOCS).parts[0] for script in SCRIPTS]
    assert folders.count("gallery") >= 20
    assert folders.count("tutorials") == 8


def test_code_fits_the_column_of_its_page():
    parser = pytest.importorskip("sphinx_gallery.py_source_parser")
    wide = [
        f"{script.name}: {line}"
        for script in SCRIPTS
        for kind, text, *_ in parser.split_code_and_text_blocks(script)[1]
        for line in text.splitlines()
        if kind == "code" and len(line) > 84
    ]
    assert wide == []


def test_the_card_of_a_script_is_the_figure_that_it_states():
    cards = pytest.importorskip("gallery_cards", reason="Sphinx is not installed")
    numbers = {script.stem: cards.chosen(script) for script in SCRIPTS}
    assert {name for name, number in numbers.items() if number == 2} == {
        "plot_2_gru_curriculum",
        "plot_3_forgetting",
        "plot_4_window",
    }
    assert set(numbers.values()) == {1, 2}


def test_a_card_has_the_first_sentence_of_its_script():
    cards = pytest.importorskip("gallery_cards", reason="Sphinx is not installed")
    page = cards.nodes.section()
    page += cards.nodes.raw("", '<div class="sphx-glr-thumbcontainer" tooltip="One. Two.">', format="html")
    page += cards.nodes.raw("", f"{cards.TITLE}Name</div></div>", format="html")
    cards.say(page)
    assert page.astext().count("One.") == 2
    assert page.astext().count("Two.") == 1


@pytest.mark.parametrize("script", list(cases()))
def test_script_runs_and_draws(script, monkeypatch):
    with mpl.rc_context({"backend": "agg"}):
        import matplotlib.pyplot as plt

        apply_style({}, script.name)  # as the site is built
        drawn = []
        monkeypatch.chdir(script.parent)  # where the site's builder runs it
        monkeypatch.setattr(plt, "show", lambda: drawn.extend(plt.get_fignums()))
        try:
            runpy.run_path(str(script), run_name="__main__")
            shown = [plt.figure(number) for number in plt.get_fignums()]
            unreadable = [fault for one in shown for fault in faults(one)]
            # The title of a short axis may be longer than it, as long as it is in the picture.
            phone = [fault for one in shown for fault in faults(for_phone(one)) if "longer than its axis" not in fault]
        finally:
            plt.close("all")
    assert drawn
    assert unreadable == phone == []


def test_panels_of_a_row_are_stacked_on_a_phone():
    for columns, across in ((1, 1), (2, 1), (4, 2)):
        figure = Figure(figsize=(8, 3), layout="constrained")
        figure.subplots(1, columns)
        boxes = [ax.get_window_extent() for ax in for_phone(figure).axes]
        assert len({round(box.x0) for box in boxes}) == across
        assert len({round(box.y0) for box in boxes}) == columns // across
        assert figure.get_size_inches()[0] == PHONE


def test_a_figure_is_saved_with_a_transparent_background_in_the_inks_of_light_and_dark_pages(tmp_path):
    with style():
        figure = Figure(layout="constrained")
        ax = figure.subplots()
        ax.plot([0, 1], color=read_tokens()["target"], label="target")
        ax.set(xlabel="steps", ylabel="a label that is much longer than the axis of a card of the gallery")
        ax.legend()
        for one in (figure, for_phone(figure)):
            save_versions(one, tmp_path / "one.png")
            for look, file in versions(tmp_path / "one.png").items():
                own, other = read_tokens(dark=look == "dark"), read_tokens(dark=look == "light")
                text = file.read_text(encoding="utf-8")
                assert own["ink"] in text
                assert own["target"] in text
                assert other["ink"] not in text
                assert "opacity: 0" in text  # the background
    assert "\n" in ax.get_ylabel()  # too long for the figure
    assert ax.get_xlabel() == "steps"
