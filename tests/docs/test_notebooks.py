"""Notebooks run in a Jupyter kernel, and every figure is displayed."""

import json
from pathlib import Path

import pytest

NOTEBOOKS = sorted((Path(__file__).parents[2] / "docs" / "tutorials").glob("*.ipynb"))
#: Cells of a session: every one after the first displays a figure.
SESSION = (
    "import learncast as lc, matplotlib.pyplot as plt, numpy as np\n"
    "task = lc.tasks.integration(steps=10)\n"
    "network = lc.LinearRNN.aligned(recurrence=0.9, initial=0.1, hidden_size=4)\n"
    "found = lc.forecast(task, network, learning_rate=0.01)\n"
    "grid = dict(vary='target_strength', values=[0.5, 1.5, 2.0], accuracies=[0.3, 0.6, 0.9])\n"
    "portrait = lc.phase(task, network, learning_rate=0.01, **grid)\n"
    "plan = lc.plan(task, [task.varied(target_strength=1.5).renamed('stronger')], network, learning_rate=0.01)",
    "found.plot();",
    "plt.plot([1, 2]);",
    "found.steps.plot();",
    "found.solution.plot();",
    "portrait.plot();",
    "plan.plot();",
    "task.plot();",
    "network.plot();",
    "found.curves(points=5).loss.plot();",
    "ax = plt.subplots()[1]; found.plot(ax=ax);",
    "plt.plot([2, 1]);",
)


def executed(cells):
    """Outputs of the cells, executed in a kernel."""
    nbclient, nbformat = pytest.importorskip("nbclient"), pytest.importorskip("nbformat")
    pytest.importorskip("ipykernel")
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(cell) for cell in cells])
    nbclient.NotebookClient(notebook, timeout=300, kernel_name="python3").execute()
    return [[kind for out in cell.outputs for kind in out.get("data", {})] for cell in notebook.cells]


@pytest.mark.slow
def test_every_figure_of_a_session_is_displayed():
    assert [outputs.count("image/png") for outputs in executed(SESSION)] == [0] + [1] * (len(SESSION) - 1)


@pytest.mark.slow
def test_results_have_an_html_repr():
    shown = executed([SESSION[0], "found", "found.steps", "portrait", "plan", "task", "network"])
    assert all("text/html" in outputs for outputs in shown[1:])


@pytest.mark.slow
@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_tutorial_runs_and_shows_its_figures(path):
    cells = ["".join(c["source"]) for c in json.loads(path.read_text())["cells"] if c["cell_type"] == "code"]
    for cell, outputs in zip(cells, executed(cells), strict=True):
        if ".plot(" in cell:
            assert "image/png" in outputs, cell


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_tutorials_are_stored_without_outputs(path):
    cells = json.loads(path.read_text())["cells"]
    assert not any(cell.get("outputs") or cell.get("execution_count") for cell in cells)
