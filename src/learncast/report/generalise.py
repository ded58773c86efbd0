"""Report of `learncast generalise`: when do I stop, and what held-out loss do I get?"""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from learncast.display import Table, format_count
from learncast.planning.generalise.generalise import generalise
from learncast.planning.generalise.result import Generalisation
from learncast.planning.generalise.transfer import Transfer
from learncast.report.report import Report, spread_rows
from learncast.study import Study

if TYPE_CHECKING:
    from matplotlib.figure import Figure

#: Rows of the curve and of the modes in a table.
MOST_ROWS = 12


def generalise_report(
    study: Study, *, test: str | Path | None = None, most_steps: int | None = None, after: str | None = None
) -> Report:
    """Forecast the held-out loss of the target; options replace the keys of [generalise]."""
    given = {"test": None if test is None else str(Path(test).resolve()), "most_steps": most_steps, "after": after}
    own = study.with_held_out({key: value for key, value in given.items() if value is not None})
    found = generalise(own.target, own.network, own.training, **own.held_out)
    return held_out_report(found, own)


def held_out_report(found: Generalisation, study: Study | None = None) -> Report:
    """Return the report of a result, with the study if there is one."""
    name = str(found.fact("task")) if study is None else study.name
    return Report(
        kind="generalise",
        title=f"{name}: held-out loss",
        lead=found.sentence + ("" if found.transfer is None else f" {found.transfer.sentence}"),
        trust=found.trust,
        values=held_out_values(found),
        tables=[found.table, *_transfer_tables(found), _curve_table(found), *_mode_tables(found)],
        dataset=lambda: found.dataset,
        draw=lambda: _draw(found),
        provenance=found.provenance,
        study="" if study is None else study.resolved(),
    )


def held_out_values(found: Generalisation) -> dict[str, Any]:
    """JSON values of a result."""
    place = int(np.searchsorted(found.values("steps"), found.stop))
    return {
        "task": found.fact("task"),
        "held_out": found.fact("held_out"),
        "trials": int(found.fact("trials")),
        "stop": found.stop,
        "stop_set": list(found.stop_set),
        "loss": found.loss,
        "loss_interval": list(found.loss_interval),
        "r2": float(found.values("r2")[place]),
        "explained": float(found.values("explained")[place]),
        "training_loss": float(found.values("train")[place]),
        "most_steps": found.most_steps,
        "rise": found.rise,
        "rise_interval": list(found.rise_interval),
        "overfits": found.overfits,
        "remarks": list(found.remarks),
        **({} if found.transfer is None else {"after": _transfer_values(found.transfer)}),
    }


def _transfer_values(transfer: Transfer) -> dict[str, Any]:
    names = ("source", "source_stop", "gain", "verdict", "last_gain", "distance")
    return {name: getattr(transfer, name) for name in names} | {
        "direct_stop": transfer.direct.stop,
        "direct_loss": transfer.direct.loss,
        "gain_interval": list(transfer.gain_interval),
        "worth": None if transfer.worth is None else list(transfer.worth),
    }


def _transfer_tables(found: Generalisation) -> list[Table]:
    return [] if found.transfer is None else [found.transfer.report_table]


def _curve_table(found: Generalisation) -> Table:
    curve = found.curve
    picks, notes = spread_rows(curve.sizes["steps"], MOST_ROWS)
    meaning = "low and high: 95% interval of the held-out loss; explained: share of the explainable loss that is gone."
    columns = ("train", "held_out", "low", "high", "r2", "explained")
    rows = [
        (format_count(float(curve["steps"][k])), *(_number(float(curve[name][k])) for name in columns)) for k in picks
    ]
    names = ("step", "training", "held out", "low", "high", "R²", "explained")
    return Table("Loss along training", names, rows, [meaning, *notes])


def _mode_tables(found: Generalisation) -> list[Table]:
    modes = found.modes
    if not modes.sizes["mode"]:
        return []
    picks, notes = spread_rows(modes.sizes["mode"], MOST_ROWS)
    rows = [
        (
            str(k + 1),
            f"{float(modes['strength'][k]):.3g}",
            "signal" if bool(modes["signal"][k]) else "noise",
            _learned(float(modes["learned"][k]), found.most_steps),
        )
        for k in picks
    ]
    edge = f"Modes below {float(found.values('edge')):.3g} are noise of this number of trials."
    return [Table("Modes of the target", ("mode", "strength", "kind", "half learned at step"), rows, [edge, *notes])]


def _learned(step: float, most: int) -> str:
    return format_count(step) if math.isfinite(step) else f"not within {most:,}"


def _number(value: float) -> str:
    return "" if math.isnan(value) else f"{value:.3g}"


def _draw(found: Generalisation) -> Figure:
    from learncast.figures import sheet

    return sheet(found.plot, width=5.4, height=3.8)
