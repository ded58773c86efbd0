"""How the documentation is built: `make docs`, without any network."""

from __future__ import annotations

import inspect
import os
import sys
from importlib.metadata import metadata
from pathlib import Path

from numpydoc.xref import DEFAULT_LINKS

DOCS = Path(__file__).parent
sys.path.insert(0, str(DOCS / "_ext"))
os.environ.setdefault("MPLBACKEND", "agg")

import at_a_glance  # noqa: E402
import name_pages  # noqa: E402
import public_names  # noqa: E402

import learncast  # noqa: E402

project = "learncast"
author = "learncast contributors"
copyright = author
release = version = learncast.__version__
language = "en"  # prose is British; the catalogue of en_GB has no plurals, on which the search page fails

extensions = [
    "sphinx.ext.autosummary",
    "sphinx.ext.viewcode",
    "numpydoc",
    "myst_parser",
    "sphinx_design",
    "sphinx_copybutton",
    "sphinxcontrib.bibtex",
    "sphinx_gallery.gen_gallery",
    "mathml",
    "docstrings",
    "at_a_glance",
    "drawn",
    "gallery_cards",
    "package_map",
    "generated_pages",
    "code_host_links",
    "source_pages",
    "race",
    "lesson",
]
templates_path = ["_templates"]
source_suffix = {".rst": "restructuredtext", ".md": "markdown"}
exclude_patterns = [
    "_build",
    "_ext",
    "_templates",
    "gallery",
    "tutorials/*.py",
    "**/GALLERY_HEADER.*",
    "results",
    "generated/extra",
]
smartquotes_action = "qe"  # two hyphens begin an option of a command; they are no dash
html_math_renderer = "mathml"
suppress_warnings = ["bibtex.missing_field"]  # a manuscript that was read without its authors' names

myst_enable_extensions = ["amsmath", "attrs_block", "attrs_inline", "colon_fence", "deflist", "dollarmath", "fieldlist"]
myst_heading_anchors = 3
bibtex_bibfiles = ["references.bib"]

autosummary_generate = True
autosummary_imported_members = False
autosummary_context = {"tabled": at_a_glance.tabled(), "guides": name_pages.guides()}
autodoc_typehints = "none"  # the text below a signature says more
autodoc_preserve_defaults = True
numpydoc_show_class_members = False
default_role = "autolink"  # `learncast.tasks.from_data` in a docstring is a link
# Types of parameters link to the public classes; Python's own types have no page here.
numpydoc_xref_param_type = True
numpydoc_xref_ignore = "all"
numpydoc_xref_aliases = dict(zip(DEFAULT_LINKS, DEFAULT_LINKS, strict=True))
numpydoc_xref_aliases |= {
    one.name: one.path for one in reversed(public_names.every()) if inspect.isclass(one.value)
}

#: Folders of scripts whose pages are made by running them.
SCRIPTS = [folder for folder in ("gallery", "tutorials") if (DOCS / folder / "GALLERY_HEADER.rst").exists()]

# Scripts named plot_*.py are run and their pictures kept; the others are shown only. One that fails fails the build.
sphinx_gallery_conf = {
    "examples_dirs": SCRIPTS,
    "gallery_dirs": [f"generated/{folder}" for folder in SCRIPTS],
    "filename_pattern": r"[\\/]plot_",
    "within_subsection_order": "FileNameSortKey",
    "abort_on_example_error": True,
    "backreferences_dir": "generated/backreferences",
    "doc_module": ("learncast",),
    "exclude_implicit_doc": set(),
    "matplotlib_animations": False,
    "remove_config_comments": True,
    "download_all_examples": False,
    "show_memory": False,
    "write_computation_times": False,
    "show_signature": False,
    "min_reported_time": 1e9,  # a time that depends on the machine that builds the site
    "image_scrapers": ("gallery_figures.save_figures",),
    "reset_modules": ("matplotlib", "gallery_figures.apply_style"),
}

html_theme = "pydata_sphinx_theme"
html_title = "learncast"
html_static_path = ["_static", "../src/learncast/tokens.css"]
html_css_files = ["tokens.css", "site.css"]
html_js_files = ["tables.js"]
html_copy_source = False
html_show_sourcelink = False
html_favicon = "_static/favicon.svg"
html_search_scorer = str(DOCS / "_ext" / "scorer.js")

#: Addresses of the project, as pyproject.toml states them.
ADDRESSES = dict(line.split(", ", 1) for line in metadata("learncast").get_all("Project-URL") or ())

html_context = {"default_mode": "auto", "source_code": next(iter(ADDRESSES.values()), "")}
html_theme_options = {
    "logo": {"image_light": "_static/logo-light.svg", "image_dark": "_static/logo-dark.svg", "alt_text": "learncast"},
    "navbar_end": ["version-tag", "theme-switcher", "navbar-icon-links"],
    "icon_links": [{"name": name, "url": url, "icon": "fa-solid fa-code"} for name, url in ADDRESSES.items()],
    "navbar_align": "left",
    "header_links_before_dropdown": 7,
    "secondary_sidebar_items": ["page-toc"],
    "footer_start": ["copyright"],
    "footer_end": ["footer-links"],
    "pygments_light_style": "a11y-high-contrast-light",
    "pygments_dark_style": "a11y-high-contrast-dark",
    "show_toc_level": 2,
}
html_sidebars = {"index": []}
copybutton_prompt_text = r">>> |\.\.\. |\$ "
copybutton_prompt_is_regexp = True
