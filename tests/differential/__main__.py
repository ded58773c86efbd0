"""Compare learncast with plain training on drawn problems: python -m tests.differential --problems 200 --seed 0."""

from __future__ import annotations

import argparse
import itertools
import time
from collections import Counter, defaultdict

from .compare import Verdict, compare
from .interfaces import ask
from .kinds import KINDS, draw
from .plain import Plain

COLUMNS = ("agreed", "disagreed", "refused", "crashed", "slow")


def main() -> int:
    """Draw problems of every kind in turn until their number or the time is used up."""
    parser = argparse.ArgumentParser(prog="python -m tests.differential", description=__doc__)
    parser.add_argument("--problems", type=int, default=200)
    parser.add_argument("--seed", type=int, default=0, help="first seed of every kind")
    parser.add_argument("--minutes", type=float, default=float("inf"))
    parser.add_argument("--kinds", nargs="*", default=list(KINDS), choices=list(KINDS))
    parser.add_argument("--show", metavar="KIND:SEED", help="print one problem and the answers to it")
    arguments = parser.parse_args()
    if arguments.show:
        name, _, seed = arguments.show.partition(":")
        return show(name, int(seed))
    end, verdicts = time.monotonic() + 60 * arguments.minutes, []
    rounds = ((seed, name) for seed in itertools.count(arguments.seed) for name in arguments.kinds)
    for seed, name in itertools.islice(rounds, arguments.problems):
        if time.monotonic() > end:
            break
        verdict = compare(draw(name, seed))
        verdicts.append(verdict)
        if verdict.outcome in ("disagreed", "crashed", "slow"):
            print(
                f"{verdict.outcome}: {verdict.detail[:600]}\n    python -m tests.differential --show {name}:{seed}",
                flush=True,
            )
    return report(verdicts)


def show(name: str, seed: int) -> int:
    """Print a problem, the answer of each interface and the verdict."""
    problem = draw(name, seed)
    plain = Plain(problem)
    print(problem, *(f"{one}: {ask(problem, one)}" for one in problem.interfaces), sep="\n")
    print("loss of the zero map:", [plain.zero_loss(k) for k in range(len(problem.tasks))])
    verdict = compare(problem)
    print(verdict.outcome, verdict.detail, sep=": ")
    return failed(verdict)


def failed(verdict: Verdict) -> bool:
    """Whether a verdict counts against learncast; single intervals may miss."""
    return verdict.outcome in ("disagreed", "crashed") and verdict.problem.question != "interval"


def report(verdicts: list[Verdict]) -> int:
    """Print the table and the refusals; 1 if anything failed."""
    table: dict[str, Counter[str]] = defaultdict(Counter)
    for verdict in verdicts:
        table[verdict.problem.kind][verdict.outcome] += 1
        table[verdict.problem.kind]["beyond"] += verdict.beyond
    print(f"{'kind':<24}", *(f"{name:>10}" for name in (*COLUMNS, "beyond")))
    for kind, counts in table.items():
        print(f"{kind:<24}", *(f"{counts[name]:>10}" for name in (*COLUMNS, "beyond")))
    refusals = Counter(verdict.detail for verdict in verdicts if verdict.outcome == "refused")
    for sentence, number in refusals.most_common():
        print(f"refused {number} times: {sentence[:300]}")
    missed = table["intervals"]["disagreed"]
    drawn = missed + table["intervals"]["agreed"]
    # 95% intervals that miss more often than 10% plus four standard errors are wrong (one false alarm in 30,000).
    uncovered = missed > 0.1 * drawn + 4 * (0.09 * drawn) ** 0.5
    if drawn:
        print(f"intervals: {drawn - missed} of {drawn} cover the truth")
    return int(uncovered or any(map(failed, verdicts)))


raise SystemExit(main())
