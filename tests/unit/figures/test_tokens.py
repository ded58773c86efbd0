"""One token file: every picture and page takes its colours from it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from learncast.display import STYLE
from learncast.figures import look

ROOT = Path(__file__).parents[3]
#: A colour written as a number, or a colour map of matplotlib.
OWN = re.compile(
    r"#[0-9a-fA-F]{6}\b|['\"]#[0-9a-fA-F]{3}['\"]|:\s*#[0-9a-fA-F]{3}\b|rgba?\(\d|hsl\(|RdBu|BrBG|[\"']tab:"
)


def sources() -> list[Path]:
    folders = {
        "src/learncast": (".py", ".css", ".js", ".html", ".mplstyle"),
        "docs/_ext": (".py",),
        "docs/_static": (".css", ".js"),
        "docs/gallery": (".py",),
        "docs/tutorials": (".py",),
    }
    found = [p for folder, ends in folders.items() for p in (ROOT / folder).rglob("*") if p.suffix in ends]
    return [p for p in found if p != look.TOKEN_FILE and p.name != "plotly.min.js"]


def test_no_other_file_has_colours_of_its_own():
    found = {p.relative_to(ROOT).as_posix(): OWN.findall(p.read_text(encoding="utf-8")) for p in sources()}
    assert len(found) > 100
    assert {name: colours for name, colours in found.items() if colours} == {}


def test_the_search_for_colours_finds_them():
    for text in ("color='#fff'", 'color="#0072B2"', "color: #fff;", 'cmap="RdBu"', "rgba(1, 2, 3)", '"tab:blue"'):
        assert OWN.search(text)


def test_every_colour_has_a_light_and_a_dark_version():
    light, dark = look.read_tokens(), look.read_tokens(dark=True)
    colours = [name for name, value in light.items() if value.startswith("#")]
    assert len(colours) > 30
    assert all(dark[name].startswith("#") for name in colours)
    assert [name for name in colours if light[name] == dark[name]] == ["series-8"]


def test_every_variable_of_a_style_sheet_is_a_token():
    tokens = look.read_tokens()
    for path in sources():
        if path.suffix == ".css":
            text = path.read_text(encoding="utf-8")
            used = set(re.findall(r"var\(--([\w-]+)", text)) - set(re.findall(r"--([\w-]+):", text))
            assert {name for name in used if not name.startswith("pst-")} <= set(tokens), path


def test_a_curriculum_and_what_it_saves_have_one_colour_everywhere():
    charts = (ROOT / "src/learncast/web/page/charts.js").read_text(encoding="utf-8")
    assert '["target", "first", "direct",' in charts
    assert {look.STAGED, look.TARGET} == {look.TOKENS["curriculum"]}
    assert look.TOKENS["direct"] == look.DIRECT
    assert 'scale("lost-most", "lost-some", "even", "saved-some", "saved-most")' in charts
    for place, token in ((0.0, "lost-most"), (0.5, "even"), (1.0, "saved-most")):
        red, green, blue, _ = look.SAVED(place)
        shown = [int(look.TOKENS[token][k : k + 2], 16) / 255 for k in (1, 3, 5)]
        assert (red, green, blue) == pytest.approx(shown, abs=1e-6)


def test_reports_hold_the_tokens_and_leave_the_page_alone():
    assert f"light-dark({look.STAGED}" in STYLE
    assert ":root" not in STYLE
    assert "data-theme" not in STYLE


def test_a_figure_in_a_page_follows_its_colours():
    svg = f'<path style="fill: none; stroke: {look.STAGED}"/><g style="fill: #030303" clip-path="url(#p0072b2)"/>'
    shown = look.themed(svg)
    assert f"stroke: light-dark({look.STAGED}, {look.read_tokens(dark=True)['curriculum']})" in shown
    assert shown.endswith('<g style="fill: #030303" clip-path="url(#p0072b2)"/>')


def luminance(colour: str) -> float:
    parts = [int(colour[k : k + 2], 16) / 255 for k in (1, 3, 5)]
    red, green, blue = (x / 12.92 if x <= 0.03928 else ((x + 0.055) / 1.055) ** 2.4 for x in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_colours_of_text_can_be_read(dark):
    tokens = look.read_tokens(dark=dark)
    text = ("ink", "faint", "accent", "good", "warning", "error", "curriculum", "direct", "first", "forgotten", "pin")
    for name in text:
        low, high = sorted(luminance(tokens[one]) for one in (name, "paper"))
        assert (high + 0.05) / (low + 0.05) >= 4.5, name  # the web's guideline for small text


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_the_centre_of_a_signed_scale_shows_the_line_of_zero_and_differs_from_the_page(dark):
    tokens = look.read_tokens(dark=dark)
    names = ("card", "ink", "even", "saved-some", "saved-most", "lost-some", "lost-most")
    card, ink, even, *others = (luminance(tokens[name]) for name in names)
    for some, most in (others[:2], others[2:]):  # the stronger, the further from the page
        assert abs(even - card) < abs(some - card) < abs(most - card)
    for other, least in ((ink, 7.0), (card, 1.05)):  # the line of zero, and cells without a number
        low, high = sorted((other, even))
        assert (high + 0.05) / (low + 0.05) >= least
