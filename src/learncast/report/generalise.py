"""Report of `learncast generalise`: when do I stop, and what held-out loss do I get?"""

from __future__ import annotations

import math
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path

import numpy as np

from learncast.display import Columns, Table, format_count
from learncast.planning.defaults import chosen_table
from learncast.planning.generalise.generalise import generalise
from learncast.planning.generalise.result import Generalisation
from learncast.planning.generalise.transfer import Transfer
from learncast.report.report import Report, fields, picture, spread_rows
from learncast.study import Study

#: Rows of the curve and of the modes in a table.
MOST_ROWS = 12


def generalise_report(
    study: Study, *, test: str | Path | None = None, most_steps: int | None = None, after: str | None = None
) -> Report:
    """Forecast the held-out loss of the target; options replace the keys of [generalise]."""
    given = {"test": None if test is None else str(Path(test).resolve()), "most_steps": most_steps, "after": after}
    own = study.with_held_out({key: value for key, value in given.items() if value is not None})
    found = generalise(own.target, own.network, own.training, **own.held_out)
    chosen = tuple(choice for choice in own.chosen if choice.setting != "goal")
    return held_out_report(replace(found, chosen=chosen), own)


def held_out_report(found: Generalisation, study: Study | None = None) -> Report:
    """Return the report of a result, with the study if there is one."""
    name = str(found.fact("task")) if study is None else study.name
    transfer = [] if found.transfer is None else [found.transfer.report_table]
    return Report(
        kind="generalise",
        title=f"{name}: held-out loss",
        lead=" ".join((found.sentence, *([found.transfer.sentence] if found.transfer else []), found.more_trials)),
        trust=found.trust,
        values=held_out_values(found),
        tables=[*chosen_table(found.chosen), found.table, *transfer, _curve_table(found), *_mode_tables(found)],
        dataset=lambda: found.dataset,
        draw=partial(picture, found.plot, width=7.0, height=3.6),
        provenance=found.provenance,
        study="" if study is None else study.resolved(),
    )


def held_out_values(found: Generalisation) -> dict[str, object]:
    """JSON values of a result."""
    place = int(np.searchsorted(found.values("steps"), found.stop))
    at_stop = {"r2": "r2", "explained": "explained", "training_loss": "train"}
    return {
        **{key: found.fact(key) for key in ("task", "held_out")},
        "trials": int(found.fact("trials")),
        **fields(found, "stop stop_set loss loss_interval most_steps rise rise_interval overfits remarks"),
        **{key: float(found.values(name)[place]) for key, name in at_stop.items()},
        **({"chosen": [asdict(choice) for choice in found.chosen]} if found.chosen else {}),
        **({} if found.transfer is None else {"after": _transfer_values(found.transfer)}),
    }


def _transfer_values(transfer: Transfer) -> dict[str, object]:
    own = fields(transfer, "source source_stop gain verdict last_gain distance gain_interval worth")
    return own | {"direct_stop": transfer.direct.stop, "direct_loss": transfer.direct.loss}


def _curve_table(found: Generalisation) -> Table:
    picks, notes = spread_rows(found.curve.sizes["steps"], MOST_ROWS)
    curve = found.curve.isel(steps=picks)
    names = {"training": "train", "held out": "held_out", "low": "low", "high": "high", "R²": "r2"}
    columns = {heading: (curve[name].values, _number) for heading, name in {**names, "explained": "explained"}.items()}
    meaning = "low and high: 95% interval of the held-out loss; explained: share of the explainable loss that is gone."
    steps = {"step": (curve["steps"].values, format_count)}
    return Table.of("Loss along training", {**steps, **columns}, [meaning, *notes])


def _mode_tables(found: Generalisation) -> list[Table]:
    if not found.modes.sizes["mode"]:
        return []
    picks, notes = spread_rows(found.modes.sizes["mode"], MOST_ROWS)
    modes, late = found.modes.isel(mode=picks), f"not within {found.most_steps:,}"
    columns: Columns = {
        "mode": ([k + 1 for k in picks], str),
        "strength": (np.where(modes["signal"], modes["strength"], modes["strength"].round(12)), "{:.3g}".format),
        "kind": (modes["signal"].values, lambda signal: "signal" if signal else "noise"),
        "half learned at step": (modes["learned"].values, lambda n: format_count(n) if math.isfinite(n) else late),
    }
    edge = f"Modes below {float(found.values('edge')):.3g} are noise of this number of trials."
    unit = "Strength: in units of the targets, for inputs of unit variance; forecasts name weights, u*, instead."
    return [Table.of("Modes of the target", columns, [edge, unit, *notes])]


def _number(value: float) -> str:
    return "" if math.isnan(value) else f"{value:.3g}"
