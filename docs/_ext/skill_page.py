"""How good the advice is: tables of the stored results of the benchmarks."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from pathlib import Path

import numpy as np

ROOT = Path(__file__).parents[2]

#: Strategies of the benchmark of rankings, as the pages call them.
STRATEGIES = {
    "ours": "`advise`",
    "closed form, b fitted to the spectrum": "closed form, recurrence fitted to the spectrum",
    "rule of thumb: largest ||Cov(x,y)||, stop at 80%": "heuristic: largest covariance, stop at 80%",
    "always direct": "direct training",
    "ours, then its shortlist and direct raced on one seed": "`advise`, then its shortlist trained on one seed",
    "noise ceiling: a repeat, new batches": "noise ceiling: a repeat with new batches",
}
RANKED = ("rank correlation", "best plan chosen", "steps / best plan", "best of three")
ADVISED = (("adam", 32), ("adam", 128), ("sgd", 32))
RATES = ("a tenth of the usual rate", "the usual rate", "five times the usual rate")
OTHERS = {
    "best fixed rate": "best fixed rate, picked on another seed",
    "6.7 clipped": "6.7 times the usual rate, clipped gradients",
    "3.3 clipped": "3.3 times the usual rate, clipped gradients",
    "mixing": "easier tasks mixed in",
    "restart": "a restart",
    "largest covariance first": "the candidate of the largest covariance first",
}


def table(head: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    """A table whose columns after the first hold numbers."""
    head = list(head)
    rule = ["---", *["--:"] * (len(head) - 1)]
    return "\n".join(f"| {' | '.join(row)} |" for row in (head, rule, *rows))


def rankings() -> dict[str, list[list[str]]]:
    """Blocks of the benchmark of rankings: their rows as cells."""
    from benchmarks import bench_skill

    blocks: dict[str, list[list[str]]] = {}
    name = ""
    for label, value, _ in bench_skill.rows(from_file=True):
        if value == bench_skill.HEADER:
            name = label
            blocks[name] = []
        elif label.startswith("  ") and name:
            cells = ["" if cell == "-" else cell for cell in value.split()]
            del cells[3]  # stops of at most 80%, which nothing here depends on
            blocks[name].append([STRATEGIES.get(label.strip(), label.strip()), *cells])
        else:
            name = ""
    return blocks


def advised() -> list[list[str]]:
    """Rows of the table of decisions, a column for each optimiser and width."""
    from benchmarks import bench_advice as bench

    columns = []
    for rule, units in ADVISED:
        part = bench.Part(bench.stored(), rule, units)
        best, helped = part.to_best(), [row[1].split() for row in bench.helped_rows(part)]
        worst = max(best.values(), key=bench.geometric)
        missed = [part.missed(given) for given in bench.GIVEN]
        columns.append([
            *(f"{bench.geometric(part.to_direct(given)):.2f}" for given in bench.GIVEN),
            *(f"{bench.geometric(bench.flat(part.to_best(given))):.2f}" for given in bench.GIVEN),
            f"{bench.geometric(worst):.2f}",
            f"{np.mean(np.array(bench.flat(best)) > 2):.0%}",
            *(f"{own} ({direct})" for own, direct, _ in missed),
            *helped[0],
            " ".join(helped[1]),
        ])  # fmt: skip
    labels = [
        *(f"steps / direct training, given {rate}" for rate in RATES),
        *(f"steps / best fixed rate, given {rate}" for rate in RATES),
        "steps / best fixed rate, worst pool",
        "cases of more than twice the steps of the best fixed rate",
        *(f"goals not reached of 81 (by direct training), given {rate}" for rate in RATES),
        "trainings with easier tasks mixed in, of 243",
        "of these, learned where the best fixed rate fails",
        "of these, not learned where the best fixed rate succeeds",
        "parity learned at the usual rate",
    ]
    return [list(cells) for cells in zip(labels, *columns, strict=True)]


def others() -> list[list[str]]:
    """Steps of other procedures at the usual rate, over those of direct training."""
    from benchmarks import bench_advice as bench

    parts = [bench.Part(bench.stored(), rule, 32) for rule in ("adam", "sgd")]
    rows = [["`advise`", *(f"{bench.geometric(part.to_direct(1.0)):.2f}" for part in parts)]]
    return rows + [
        [name, *(f"{bench.geometric(part.baseline(key)):.2f}" for part in parts)] for key, name in OTHERS.items()
    ]


def remaining() -> list[list[str]]:
    """Error, coverage and width of the estimates of remaining steps."""
    from benchmarks import bench_advice as bench

    names = ("an earlier run with another seed, before the first step", "the curve alone")
    found = (row[1].split() for row in bench.remaining_rows(bench.stored()))
    return [
        [name, f"a factor {2 ** float(error):.1f}", f"{float(covered):.0%}", f"1 : {width}"]
        for name, (error, covered, width) in zip(names, found, strict=True)
    ]


def page() -> str:
    """The page in MyST."""
    if str(ROOT) not in sys.path:
        sys.path.insert(0, str(ROOT))
    from benchmarks import bench_advice as bench

    blocks = rankings()
    held, *folded = blocks
    changed = bench.stored()["procedure"] != bench.procedure_hash()
    return PAGE.format(
        rankings=table(("strategy", *RANKED), blocks[held]),
        folded="\n\n".join(
            f"**{name.split(':')[0].capitalize()}**\n\n{table(('', *RANKED), blocks[name])}" for name in folded
        ),
        advised=table(("", "Adam, 32 units", "Adam, 128 units", "SGD with momentum, 32 units"), advised()),
        others=table(("steps / direct training at the usual rate", "Adam", "SGD with momentum"), others()),
        remaining=table(("source", "median error", "80% intervals that cover", "width of the interval"), remaining()),
        changed="The code of the procedure has changed since." if changed else "Its code has not changed since.",
    )


PAGE = """\
# How good the advice is

`advise` suggests how to train a GRU, an LSTM or another network in which all weights learn. Here its suggestions are compared with
networks that were trained by every plan. The tables are made from stored results when this site is built.
[The theory page](../../theory/surrogates.md) explains the method and its limits.

```{{drawn}} skill_dots
:width: 720
```

## Goals on a loss

Six pools of integration tasks were generated before tuning. Tanh networks and GRUs with 64 units were trained by all 19 plans of each
pool, until the loss was 5% of its start. These are the results on the three pools that were not used for tuning. *Steps / best plan*
divides the steps of the chosen plan by those of the best one; *best of three* allows to train the shortlist of three.

{rankings}

A linear map solves these tasks. The surrogate has no information about tasks with products of inputs.

:::{{dropdown}} Pools used for tuning, all pools, and results by cell and optimiser

{folded}
:::

`python -m benchmarks skill --from-file` prints these numbers; `--preset full` trains again (about 36 minutes on one core).

## Goals on decisions

The advice was tuned on sixteen generated pools, then frozen, and judged on nine others with three cells, three seeds and three given
learning rates; the usual rate of Adam is 3e-3. {changed} Steps are those to 85% correct decisions, with pilots included.

{advised}

With Adam, the learning rate saves most of the steps, not the curriculum. With SGD, a fixed rate of 3.3 times the usual one with
clipped gradients is better than the advice: pilots of five steps see little of what momentum does later. Nothing is promised over a
well-chosen rate, for other goals, or for other widths and optimisers.

{others}

`python -m benchmarks advice` prints these numbers. `python -m benchmarks.advice_runs` trains what is not stored.

## How many steps remain

`training.Remaining` estimates the remaining steps to a goal on decisions while a network of these pools trains.

{remaining}

An estimate from an earlier run is useful. One from the curve alone is honest, but its interval is too wide to help.
"""
