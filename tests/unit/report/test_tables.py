"""Tables of reports are short: equal rows are merged, losses are rounded, and the files keep every number."""

from __future__ import annotations

import json
import re

import pytest

import learncast as lc
from learncast.display import format_loss


def test_equal_modes_share_a_row() -> None:
    task = lc.tasks.integration(steps=20, target_strength=[2.0, 1.0, 1.0, 1.0])
    network = lc.LinearRNN.aligned(task=task, hidden_size=4, recurrence=0.9, initial=0.05)
    report = lc.forecast(task, network, learning_rate=1e-3).report()
    (table,) = report.tables
    assert [row[0] for row in table.rows] == ["1", "2–4"]
    assert [mode["mode"] for mode in json.loads(report.json())["modes"]] == [0, 1, 2, 3]
    assert "status" not in table.columns  # every mode is learned


def test_losses_of_a_sequence_have_three_digits_in_text_and_all_in_json() -> None:
    task = lc.tasks.integration(steps=50)
    network = lc.LinearRNN.aligned(recurrence=0.96, initial=0.01, hidden_size=4)
    report = lc.forget([task, task.varied(target_strength=1.7)], network, steps=[300, 150], learning_rate=1e-3).report()
    cells = [cell for table in report.tables for row in table.rows for cell in row[1:]]
    numbers = [re.sub(r"e.*|[^\d]", "", cell).lstrip("0") for cell in cells]
    assert max(map(len, numbers)) == 3
    assert any(len(str(value)) > 10 for row in json.loads(report.json())["loss"] for value in row)


@pytest.mark.parametrize(
    ("loss", "text"), [(1234.5, "1,234"), (-0.123456, "-0.123"), (1e-15, "0"), (float("nan"), "unknown")]
)
def test_a_loss_in_text(loss: float, text: str) -> None:
    assert format_loss(loss) == text
