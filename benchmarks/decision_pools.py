"""Pools of decision tasks: a target and easier variants each, fixed with their criteria before any method was tuned.

Every trial is read step by step and answered at every step: 0 is "wait", the other labels are choices. The first
input says "wait" until the last `DECISION` steps, where the choice is due. The goal of a pool is the share of right
answers there, on trials that were not trained on.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

#: Steps of a trial; the last ones are those of the decision.
STEPS, DECISION = 14, 3
#: Share of right decisions at which a target, and a candidate on its own task, counts as learned.
CRITERION = 0.85

Trials = tuple[NDArray[np.float32], NDArray[np.int64]]
Draw = Callable[[np.random.Generator, int], Trials]


@dataclass(frozen=True)
class Pool:
    """A target, easier variants, the loss they are trained by and the number of labels."""

    name: str
    target: Draw
    candidates: dict[str, Draw]
    loss: str
    inputs: int
    labels: int


def _blank(rng: np.random.Generator, n: int, channels: int, noise: float) -> NDArray[np.float32]:
    x = np.zeros((n, STEPS, 1 + channels), dtype=np.float32)
    x[:, :-DECISION, 0] = 1.0
    x[:, :, 1:] = noise * rng.standard_normal((n, STEPS, channels))
    return x


def _answered(x: NDArray[np.float32], choice: NDArray[np.int64]) -> Trials:
    y = np.zeros(x.shape[:2], dtype=np.int64)
    y[:, -DECISION:] = 1 + choice[:, None]
    return x, y


def _signs(rng: np.random.Generator, n: int) -> NDArray[np.float64]:
    return rng.choice([-1.0, 1.0], n)


def _choice(value: NDArray[np.float64]) -> NDArray[np.int64]:
    return (value > 0).astype(np.int64)


def accumulate(strength: float, noise: float = 0.6, first: int = 1, partial: bool = False) -> Draw:
    """Which of two channels is larger on average, or (partial) in the last step alone."""

    def draw(rng: np.random.Generator, n: int) -> Trials:
        x = _blank(rng, n, 2, noise)
        sign = _signs(rng, n)
        steps = np.arange(first, STEPS - DECISION)
        if partial:
            signs = rng.choice([-1.0, 1.0], (n, len(steps)))
            sign = signs[:, -1]
        else:
            signs = np.repeat(sign[:, None], len(steps), 1)
        x[:, steps, 1] += 0.5 * strength * signs
        x[:, steps, 2] -= 0.5 * strength * signs
        return _answered(x, _choice(sign))

    return draw


def reach(directions: int = 4, shown: int = 2, distractor: float = 0.7, late: int = 1) -> Draw:
    """Remember one of several directions over a delay, past a distracting direction."""

    def draw(rng: np.random.Generator, n: int) -> Trials:
        x = _blank(rng, n, 2, 0.1)
        where = rng.integers(0, directions, n)
        angle, other = 2 * np.pi * where / 4, 2 * np.pi * rng.integers(0, 4, n) / 4
        x[:, late : late + shown, 1] += np.cos(angle)[:, None]
        x[:, late : late + shown, 2] += np.sin(angle)[:, None]
        x[:, 7:9, 1] += distractor * np.cos(other)[:, None]
        x[:, 7:9, 2] += distractor * np.sin(other)[:, None]
        return _answered(x, where.astype(np.int64))

    return draw


def pro_anti(cue: slice, stimulus: slice, pro: float = 0.5) -> Draw:
    """The side of a stimulus, or the other side when the cue says so: a product."""

    def draw(rng: np.random.Generator, n: int) -> Trials:
        x = _blank(rng, n, 2, 0.1)
        rule, side = np.where(rng.random(n) < pro, 1.0, -1.0), _signs(rng, n)
        x[:, cue, 1] += rule[:, None]
        x[:, stimulus, 2] += side[:, None]
        return _answered(x, _choice(rule * side))

    return draw


def xor(first: slice, second: slice, answer: str = "both") -> Draw:
    """Whether two pulses of one channel have the same sign, or the sign of one of them."""

    def draw(rng: np.random.Generator, n: int) -> Trials:
        x = _blank(rng, n, 1, 0.1)
        a, b = _signs(rng, n), _signs(rng, n)
        x[:, first, 1] += a[:, None]
        x[:, second, 1] += b[:, None]
        return _answered(x, _choice({"both": a * b, "first": a, "second": b}[answer]))

    return draw


def recall(items: slice, cue: slice, other: float = 1.0, first_only: bool = False) -> Draw:
    """The sign of that one of two items which a later cue asks for."""

    def draw(rng: np.random.Generator, n: int) -> Trials:
        x = _blank(rng, n, 4, 0.1)
        values = rng.choice([-1.0, 1.0], (n, 2))
        asked = np.zeros(n, dtype=np.int64) if first_only else rng.integers(0, 2, n)
        rows = np.arange(n)
        shown = values.copy()
        shown[rows, 1 - asked] *= other
        x[:, items, 1:3] += shown[:, None, :]
        for step in range(*cue.indices(STEPS)):
            x[rows, step, 3 + asked] += 1.0
        return _answered(x, _choice(values[rows, asked]))

    return draw


def clicks(rates: tuple[float, float], most: int = STEPS, answer: str = "more") -> Draw:
    """On which side more clicks were heard, or the side of the first click; trials with a tie are drawn again."""

    def draw(rng: np.random.Generator, n: int) -> Trials:
        begin = max(1, STEPS - DECISION - most)
        heard = np.zeros((n, STEPS - DECISION - begin, 2))
        open_ = np.ones(n, dtype=bool)
        while open_.any():
            side = rng.integers(0, 2, open_.sum())
            rate = np.where(np.arange(2)[None] == side[:, None], rates[0], rates[1])
            heard[open_] = rng.random((open_.sum(), heard.shape[1], 2)) < rate[:, None, :]
            counts = heard.sum(1)
            if answer == "more":
                open_ = counts[:, 0] == counts[:, 1]
            else:
                time = np.where(heard.any(1), heard.argmax(1), STEPS)
                open_ = time[:, 0] == time[:, 1]
        x = _blank(rng, n, 2, 0.05)
        x[:, begin : STEPS - DECISION, 1:] += heard
        if answer == "more":
            return _answered(x, _choice(heard.sum(1)[:, 1] - heard.sum(1)[:, 0]))
        time = np.where(heard.any(1), heard.argmax(1), STEPS)
        return _answered(x, _choice((time[:, 0] - time[:, 1]).astype(float)))

    return draw


def order(gaps: tuple[int, int], noise: float = 0.15, second: float = 1.0, begin: int = 1) -> Draw:
    """Which of two channels had its pulse first."""

    def draw(rng: np.random.Generator, n: int) -> Trials:
        x = _blank(rng, n, 2, noise)
        gap = rng.integers(gaps[0], gaps[1] + 1, n)
        start = begin + (rng.random(n) * (STEPS - DECISION - begin - gap)).astype(np.int64)
        which, rows = rng.integers(0, 2, n), np.arange(n)
        x[rows, start, 1 + which] += 1.0
        x[rows, start + gap, 2 - which] += second
        return _answered(x, which.astype(np.int64))

    return draw


def pairs(kinds: int, first: slice, second: slice, answer: str = "match") -> Draw:
    """Whether the second of two stimuli is the partner of the first, or which half the first is of."""

    def draw(rng: np.random.Generator, n: int) -> Trials:
        x = _blank(rng, n, 6, 0.1)
        a, match, rows = rng.integers(0, kinds, n), rng.integers(0, 2, n), np.arange(n)
        b = np.where(match == 1, a, (a + rng.integers(1, kinds, n)) % kinds)
        for step in range(*first.indices(STEPS)):
            x[rows, step, 1 + a] += 1.0
        for step in range(*second.indices(STEPS)):
            x[rows, step, 4 + b] += 1.0
        return _answered(x, (match if answer == "match" else a % 2).astype(np.int64))

    return draw


def gate(strength: float, closed: float = 1.0, open_share: float = 0.5) -> Draw:
    """The sign of the evidence that came while a gate was open; what came while it was closed says nothing."""

    def draw(rng: np.random.Generator, n: int) -> Trials:
        x = _blank(rng, n, 2, 0.2)
        steps = slice(1, STEPS - DECISION)
        opened = rng.random((n, STEPS - DECISION - 1)) < open_share
        opened[np.arange(n), rng.integers(0, opened.shape[1], n)] = True
        sign = _signs(rng, n)
        noise = closed * rng.choice([-1.0, 1.0], opened.shape)
        x[:, steps, 1] += np.where(opened, strength * sign[:, None], noise)
        x[:, steps, 2] = opened
        return _answered(x, _choice(sign))

    return draw


def duration(short: tuple[int, int], long: tuple[int, int], onset: int = 3, louder: float = 0.0) -> Draw:
    """Whether a pulse was long or short."""

    def draw(rng: np.random.Generator, n: int) -> Trials:
        x = _blank(rng, n, 1, 0.15)
        is_long = rng.integers(0, 2, n)
        lasts = np.where(is_long == 1, rng.integers(long[0], long[1] + 1, n), rng.integers(short[0], short[1] + 1, n))
        start = 1 + rng.integers(0, onset + 1, n)
        time = np.arange(STEPS)[None]
        on = (time >= start[:, None]) & (time < (start + lasts)[:, None])
        x[:, :, 1] += on * (1.0 + louder * is_long[:, None])
        return _answered(x, is_long.astype(np.int64))

    return draw


def halves(strength: float, delay: int = 2, noise: float = 0.3, answer: str = "larger") -> Draw:
    """Whether the second of two noisy stretches was larger than the first, or whether it was large."""

    def draw(rng: np.random.Generator, n: int) -> Trials:
        x = _blank(rng, n, 1, noise)
        first, second = rng.uniform(-1, 1, (2, n))
        second = np.clip(first + _signs(rng, n) * rng.uniform(0.3, 1.0, n) * strength, -1.5, 1.5)
        begin = 9 - delay - 3
        x[:, begin : begin + 3, 1] += first[:, None]
        x[:, 8:11, 1] += second[:, None]
        return _answered(x, _choice(second - first if answer == "larger" else second))

    return draw


def context(strength: float, other: float = 1.0, cue: slice = slice(0, 11), noise: float = 0.5) -> Draw:
    """The sign of that one of two noisy channels which a cue points to."""

    def draw(rng: np.random.Generator, n: int) -> Trials:
        x = _blank(rng, n, 4, noise)
        x[:, :, 3:] = 0.0
        signs, asked, rows = rng.choice([-1.0, 1.0], (n, 2)), rng.integers(0, 2, n), np.arange(n)
        size = np.full((n, 2), other * strength)
        size[rows, asked] = strength
        x[:, 1:11, 1:3] += (signs * size)[:, None, :]
        for step in range(*cue.indices(STEPS)):
            x[rows, step, 3 + asked] = 1.0
        return _answered(x, _choice(signs[rows, asked]))

    return draw


def largest(places: int, gap: float, last: int = 10) -> Draw:
    """Which of several pulses, one after the other, was the largest."""

    def draw(rng: np.random.Generator, n: int) -> Trials:
        x = _blank(rng, n, 1, 0.05)
        sizes, which = rng.uniform(0.2, 0.7, (n, places)), rng.integers(0, places, n)
        sizes[np.arange(n), which] = sizes.max(1) + gap
        for k in range(places):
            x[:, last - 3 * (places - 1 - k), 1] += sizes[:, k]
        return _answered(x, which.astype(np.int64))

    return draw


def reversal(strength: float, when: tuple[int, int] = (3, 9), flips: float = 0.5) -> Draw:
    """The sign of evidence, or the other one when a pulse of another channel turned its meaning round."""

    def draw(rng: np.random.Generator, n: int) -> Trials:
        x = _blank(rng, n, 2, 0.3)
        sign, turned = _signs(rng, n), rng.random(n) < flips
        time, rows = rng.integers(when[0], when[1], n), np.arange(n)
        x[rows[turned], time[turned], 2] += 1.0
        x[:, 1:11, 1] += strength * sign[:, None]
        return _answered(x, _choice(np.where(turned, -sign, sign)))

    return draw


def counting(many: tuple[int, int], few: tuple[int, int], spread: int = 10) -> Draw:
    """Whether there were many or few pulses."""

    def draw(rng: np.random.Generator, n: int) -> Trials:
        x = _blank(rng, n, 1, 0.05)
        is_many = rng.integers(0, 2, n)
        number = np.where(is_many == 1, rng.integers(many[0], many[1] + 1, n), rng.integers(few[0], few[1] + 1, n))
        ranks = rng.random((n, spread)).argsort(1).argsort(1)
        x[:, 11 - spread : 11, 1] += ranks < number[:, None]
        return _answered(x, is_many.astype(np.int64))

    return draw


def conjunction(delay: int, answer: str = "both", noise: float = 0.2) -> Draw:
    """Whether both of two features were shown, or one of them alone."""

    def draw(rng: np.random.Generator, n: int) -> Trials:
        x = _blank(rng, n, 2, noise)
        a, b = (rng.random((2, n)) < (np.sqrt(0.5) if answer == "both" else 0.5)).astype(float)
        begin = max(1, 8 - delay)
        x[:, begin : begin + 2, 1] += a[:, None]
        x[:, 9:11, 2] += b[:, None]
        value = {"both": a * b, "first": a, "second": b}[answer]
        return _answered(x, value.astype(np.int64))

    return draw


_EARLY, _LATE = slice(3, 5), slice(7, 9)
_ALL = slice(1, 11)

#: In the order drawn; the places of the two halves were fixed before anything was trained to the end.
POOLS = (
    Pool(
        "accumulate",
        accumulate(0.4),
        {
            "strong": accumulate(1.8),
            "strong and short": accumulate(1.8, first=8),
            "no noise": accumulate(0.4, noise=0.05),
            "last step": accumulate(1.8, partial=True),
        },
        "cross_entropy",
        3,
        3,
    ),
    Pool(
        "reach",
        reach(),
        {"shown throughout": reach(shown=10, distractor=0.0), "no distractor": reach(distractor=0.0), "two": reach(2)},
        "squared",
        3,
        5,
    ),
    Pool(
        "pro-anti",
        pro_anti(_EARLY, _LATE),
        {
            "pro alone": pro_anti(_EARLY, _LATE, pro=1.0),
            "cue stays": pro_anti(_ALL, _LATE),
            "both stay": pro_anti(_ALL, _ALL),
        },
        "squared",
        3,
        3,
    ),
    Pool(
        "xor",
        xor(slice(2, 4), slice(6, 8)),
        {
            "late and close": xor(slice(7, 9), slice(9, 11)),
            "second pulse": xor(slice(2, 4), slice(6, 8), "second"),
            "first pulse": xor(slice(2, 4), slice(6, 8), "first"),
            "no delay after": xor(slice(1, 6), slice(6, 11)),
        },
        "cross_entropy",
        2,
        3,
    ),
    Pool(
        "recall",
        recall(_EARLY, _LATE),
        {
            "all stays": recall(_ALL, _ALL),
            "other absent": recall(_EARLY, _LATE, other=0.0),
            "first asked": recall(_EARLY, _LATE, first_only=True),
            "short delay": recall(slice(6, 8), slice(8, 10)),
        },
        "cross_entropy",
        5,
        3,
    ),
    Pool(
        "clicks",
        clicks((0.4, 0.3)),
        {
            "one side": clicks((0.4, 0.0)),
            "few": clicks((0.6, 0.2), most=4),
            "first click": clicks((0.4, 0.4), answer="first"),
        },
        "squared",
        3,
        3,
    ),
    Pool(
        "order",
        order((2, 5)),
        {
            "far apart": order((5, 7)),
            "first alone": order((2, 5), second=0.0),
            "no noise": order((2, 5), noise=0.02),
            "late": order((2, 2), begin=7),
        },
        "squared",
        3,
        3,
    ),
    Pool(
        "pairs",
        pairs(3, _EARLY, _LATE),
        {
            "together": pairs(3, _LATE, _LATE),
            "two kinds": pairs(2, _EARLY, _LATE),
            "first alone": pairs(3, _EARLY, _LATE, "first"),
        },
        "cross_entropy",
        7,
        3,
    ),
    Pool(
        "gate",
        gate(0.5),
        {
            "always open": gate(0.5, open_share=1.0),
            "silence when closed": gate(0.5, closed=0.0),
            "strong": gate(1.5),
        },
        "cross_entropy",
        3,
        3,
    ),
    Pool(
        "duration",
        duration((3, 4), (5, 6)),
        {
            "extremes": duration((1, 1), (6, 7)),
            "known onset": duration((3, 4), (5, 6), onset=0),
            "long is louder": duration((3, 4), (5, 6), louder=0.5),
        },
        "squared",
        2,
        3,
    ),
)
#: Drawn after a first way had been tuned on every second of `POOLS` and had failed on the others, and before a second
#: way was looked for on all ten.
FRESH = (
    Pool(
        "halves",
        halves(0.8),
        {
            "far apart": halves(1.6),
            "no delay, no noise": halves(0.8, delay=0, noise=0.05),
            "second alone": halves(0.8, answer="second"),
        },
        "cross_entropy",
        2,
        3,
    ),
    Pool(
        "context",
        context(0.35),
        {
            "strong": context(1.0),
            "other silent": context(0.35, other=0.0),
            "late cue, strong": context(1.0, cue=slice(9, 11)),
        },
        "squared",
        5,
        3,
    ),
    Pool(
        "largest",
        largest(3, 0.25),
        {"clearly": largest(3, 0.8), "of two": largest(2, 0.25), "of two, clearly": largest(2, 0.8)},
        "cross_entropy",
        2,
        4,
    ),
    Pool(
        "reversal",
        reversal(0.5),
        {
            "never turned": reversal(0.5, flips=0.0),
            "strong": reversal(1.2),
            "known time": reversal(0.5, when=(6, 7)),
            "always turned": reversal(0.5, flips=1.0),
        },
        "squared",
        3,
        3,
    ),
    Pool(
        "counting",
        counting((5, 7), (2, 4)),
        {
            "extremes": counting((7, 9), (0, 2)),
            "dense": counting((4, 5), (1, 2), spread=6),
            "one more": counting((5, 5), (4, 4)),
        },
        "cross_entropy",
        2,
        3,
    ),
    Pool(
        "conjunction",
        conjunction(6),
        {
            "no delay": conjunction(0),
            "no noise": conjunction(6, noise=0.02),
            "first": conjunction(6, "first"),
            "second": conjunction(6, "second"),
        },
        "squared",
        3,
        3,
    ),
)


def parity(pulses: tuple[int, ...], fixed: tuple[int, ...] = ()) -> Draw:
    """Sign of the product of several pulses; some of them may always be positive."""

    def draw(rng: np.random.Generator, n: int) -> Trials:
        x = _blank(rng, n, 1, 0.1)
        values = rng.choice([-1.0, 1.0], (n, len(pulses)))
        values[:, list(fixed)] = 1.0
        for k, step in enumerate(pulses):
            x[:, step : step + 2, 1] += values[:, k : k + 1]
        return _answered(x, _choice(values.prod(1)))

    return draw


def marked(marks: int, answer: str, *, last: int = 1, large: bool = False) -> Draw:
    """Sign of the sum or the product of the values at marked steps; the other values say nothing."""

    def draw(rng: np.random.Generator, n: int) -> Trials:
        x = _blank(rng, n, 2, 0.05)
        steps = np.arange(last, STEPS - DECISION)
        values = rng.choice([-1.0, 1.0], (n, len(steps))) if large else rng.uniform(-1, 1, (n, len(steps)))
        ranks = rng.random((n, len(steps))).argsort(1).argsort(1)
        chosen = ranks < marks
        x[:, steps, 1] += values
        x[:, steps, 2] += chosen
        picked = np.where(chosen, values, 0.0 if answer == "sum" else 1.0)
        total = picked.sum(1) if answer == "sum" else picked.prod(1)
        return _answered(x, _choice(total))

    return draw


def vote(agree: float, noise: float = 0.4, shown: slice = slice(2, 5)) -> Draw:
    """The sign that most of five channels show."""

    def draw(rng: np.random.Generator, n: int) -> Trials:
        x = _blank(rng, n, 5, noise)
        sign = _signs(rng, n)
        votes = np.where(rng.random((n, 5)) < agree, sign[:, None], -sign[:, None])
        x[:, shown, 1:] += votes[:, None, :]
        return _answered(x, _choice(votes.sum(1)))

    return draw


def copy_symbol(symbols: int, when: int, distractor: float = 0.6) -> Draw:
    """Which of several symbols was shown, past other symbols that are weaker."""

    def draw(rng: np.random.Generator, n: int) -> Trials:
        x = _blank(rng, n, 4, 0.1)
        which, rows = rng.integers(0, symbols, n), np.arange(n)
        x[rows, when, 1 + which] += 1.0
        for step in range(when + 2, STEPS - DECISION):
            x[rows, step, 1 + rng.integers(0, 4, n)] += distractor
        return _answered(x, which.astype(np.int64))

    return draw


def rotated(cue: slice, shown: slice, turns: float = 0.5) -> Draw:
    """One of four directions, turned by a right angle when a cue says so."""

    def draw(rng: np.random.Generator, n: int) -> Trials:
        x = _blank(rng, n, 3, 0.1)
        where, turned = rng.integers(0, 4, n), rng.random(n) < turns
        angle = np.pi / 2 * where
        x[:, shown, 1] += np.cos(angle)[:, None]
        x[:, shown, 2] += np.sin(angle)[:, None]
        x[:, cue, 3] += turned[:, None]
        return _answered(x, ((where + turned) % 4).astype(np.int64))

    return draw


def last_pulse(rate: float, size: float = 1.0, noise: float = 0.3) -> Draw:
    """Sign of the last of several pulses at random times."""

    def draw(rng: np.random.Generator, n: int) -> Trials:
        x = _blank(rng, n, 1, noise)
        steps = STEPS - DECISION - 1
        on = rng.random((n, steps)) < rate
        on[np.arange(n), rng.integers(0, steps, n)] = True
        signs = rng.choice([-1.0, 1.0], (n, steps))
        x[:, 1 : 1 + steps, 1] += size * on * signs
        last = steps - 1 - on[:, ::-1].argmax(1)
        return _answered(x, _choice(signs[np.arange(n), last]))

    return draw


def run_length(long: int, noise: float = 0.1) -> Draw:
    """Which of two values was repeated more often in succession: a run of `long` against one a step shorter."""

    def draw(rng: np.random.Generator, n: int) -> Trials:
        x = _blank(rng, n, 1, noise)
        which, first = _signs(rng, n), rng.random(n) < 0.5
        begin = rng.integers(1, STEPS - DECISION - 2 * long + 1, n)
        time = np.arange(STEPS)[None]
        one = np.where(first, long, long - 1)
        early = (time >= begin[:, None]) & (time < (begin + one)[:, None])
        late = (time >= (begin + one)[:, None]) & (time < (begin + 2 * long - 1)[:, None])
        x[:, :, 1] += np.where(early, which[:, None], 0.0) - np.where(late, which[:, None], 0.0)
        return _answered(x, _choice(np.where(first, which, -which)))

    return draw


def product_of_channels(delay: int, second: float = 1.0, noise: float = 0.2) -> Draw:
    """Whether two pulses of different channels have the same sign."""

    def draw(rng: np.random.Generator, n: int) -> Trials:
        x = _blank(rng, n, 2, noise)
        a, b = _signs(rng, n), np.where(rng.random(n) < second, _signs(rng, n), 1.0)
        x[:, 8 - delay : 10 - delay, 1] += a[:, None]
        x[:, 8:10, 2] += b[:, None]
        return _answered(x, _choice(a * b))

    return draw


#: No network was trained on these before the procedure of `learncast.advise` was frozen; they are judged once.
JUDGED = (
    Pool(
        "parity",
        parity((1, 4, 7)),
        {
            "first two": parity((1, 4, 7), fixed=(2,)),
            "last alone": parity((1, 4, 7), fixed=(0, 1)),
            "close and late": parity((4, 6, 8)),
        },
        "cross_entropy",
        2,
        3,
    ),
    Pool(
        "adding",
        marked(2, "sum"),
        {"one mark": marked(1, "sum"), "late": marked(2, "sum", last=6), "large values": marked(2, "sum", large=True)},
        "squared",
        3,
        3,
    ),
    Pool(
        "marked product",
        marked(2, "product", large=True),
        {
            "one mark": marked(1, "product", large=True),
            "late": marked(2, "product", last=7, large=True),
            "sum": marked(2, "sum", large=True),
        },
        "cross_entropy",
        3,
        3,
    ),
    Pool(
        "vote",
        vote(0.7),
        {"unanimous": vote(1.0), "shown longer": vote(0.7, shown=slice(2, 11)), "no noise": vote(0.7, noise=0.05)},
        "cross_entropy",
        6,
        3,
    ),
    Pool(
        "copy",
        copy_symbol(4, 1),
        {
            "late": copy_symbol(4, 8),
            "no distractors": copy_symbol(4, 1, distractor=0.0),
            "two symbols": copy_symbol(2, 1),
        },
        "squared",
        5,
        5,
    ),
    Pool(
        "rotated",
        rotated(slice(1, 3), slice(5, 7)),
        {
            "never turned": rotated(slice(1, 3), slice(5, 7), turns=0.0),
            "cue stays": rotated(slice(1, 11), slice(5, 7)),
            "all stays": rotated(slice(1, 11), slice(1, 11)),
        },
        "cross_entropy",
        4,
        5,
    ),
    Pool(
        "last pulse",
        last_pulse(0.4),
        {"few pulses": last_pulse(0.1), "large": last_pulse(0.4, size=2.0), "no noise": last_pulse(0.4, noise=0.05)},
        "cross_entropy",
        2,
        3,
    ),
    Pool(
        "run length",
        run_length(4),
        {"short": run_length(2), "no noise": run_length(4, noise=0.01), "three": run_length(3)},
        "squared",
        2,
        3,
    ),
    Pool(
        "product of channels",
        product_of_channels(6),
        {
            "together": product_of_channels(0),
            "second fixed": product_of_channels(6, second=0.0),
            "no noise": product_of_channels(6, noise=0.02),
        },
        "cross_entropy",
        3,
        3,
    ),
)
