"""The figures of "Exact learning dynamics of deep linear networks with prior knowledge" (braun2022).

The settings in the paper's appendix are unreadable: sizes, scales, learning rates and seeds are ours, except the rates
of 2C. The exact flow replaces eq. (11) of the paper, which has no bottlenecks
and no saddles; `paper_solution.paper_grams` implements that equation.
"""

from __future__ import annotations

from functools import partial
from typing import Any

from learncast import figures
from learncast.papers.paper import Paper, PaperFigure, captions_of, painted, schematic
from learncast.papers.prior_knowledge import continual, learning, revision
from learncast.papers.prior_knowledge.descent import RATE, draw_functions, gaps
from learncast.papers.prior_knowledge.kingdom import ITEMS, structure
from learncast.papers.prior_knowledge.revision import KICK
from learncast.papers.runs import only

#: Runs of the figures for which networks are trained in torch.
TRAINED = {
    **dict.fromkeys(("2C", "2D"), learning.architecture_runs),
    **dict.fromkeys(("5B", "5C"), continual.pair_runs),
    **dict.fromkeys(("5D", "5E"), continual.five_runs),
}


def paper() -> Paper:
    """Return all figures."""
    outputs, everything, revised = learning.outputs_from, learning.everything_from, revision.curves
    both, one = partial(gaps, ("network_function", "loss")), partial(gaps, ("network_function",))
    all_five = partial(gaps, learning.QUANTITIES)
    deviations = painted(figures.deviations, width=3.5, height=2.6, title="theory against training")
    draw_structure, five = learning.draw_structure, partial(draw_functions, "five networks of 2C", name="loss")
    starts, ends = ("small weights", "large weights"), ("two fish swapped", "colour hierarchy")
    made: dict[str, tuple[Any, Any, Any]] = {
        "1A": schematic(figures.layer_scheme, (3, 5, 2)),
        "1B": (partial(outputs, "1B"), partial(draw_functions, "from small weights"), both),
        "1C": (partial(outputs, "1C"), partial(draw_functions, "from large weights"), both),
        "1D": (partial(outputs, "1D"), partial(draw_functions, "from learned weights"), both),
        "2A": (partial(everything, "2A"), partial(learning.draw_everything, "small start"), all_five),
        "2B": (partial(everything, "2B"), partial(learning.draw_everything, "large start"), all_five),
        "2C": (learning.architectures, deviations, learning.deviation_numbers),
        "2D": (learning.five_architectures, five, partial(gaps, ("loss",))),
        "3B": (partial(structure, slice(1)), partial(draw_structure, slice(1)), learning.structure_numbers),
        "4C": (learning.three_targets, learning.draw_targets, learning.target_numbers),
        "3F": (learning.regimes, learning.draw_regimes, learning.regime_numbers),
        "5A": (continual.three_tasks, continual.draw_sequence, both),
        "5B": (only, continual.draw_forgetting, continual.forgetting_numbers),
        "5C": (only, continual.draw_imbalance, continual.imbalance_numbers),
        "6A": (revision.reversal, revision.draw_reversal, revision.reversal_numbers),
        "6B": (revision.shallow_reversal, partial(draw_functions, "reversal, one layer"), one),
        "6C": (structure, revision.draw_features, learning.structure_numbers),
        "6D": (structure, partial(draw_structure, slice(1, 3)), learning.structure_numbers),
        "6E": (revised, partial(revision.draw_revision, "loss_in_training"), revision.revision_numbers),
        "6F": (revised, partial(revision.draw_revision, "item_output"), revision.item_numbers),
        "6G": (partial(revision.paths, 0), partial(revision.draw_paths, starts), revision.path_numbers),
        "6H": (partial(revision.paths, 1), partial(revision.draw_paths, ends), revision.path_numbers),
    }

    def drawn(draw: Any, title: str, **options: object) -> Any:
        return lambda _: figures.sheet(partial(draw, title=title, **options), width=3.4, height=2.2)

    tree = partial(figures.tree, leaves=ITEMS)
    made["3A"] = (partial(structure, slice(1)), drawn(tree, "the living kingdom"), learning.structure_numbers)
    decoupled = partial(learning.decoupling_from, "4A")
    made["4B"] = (decoupled, drawn(figures.decoupling_scheme, "decoupling"), learning.decoupling_numbers)
    for name in learning.STARTS:
        made[name] = (learning.regimes, partial(learning.draw_gram, name), partial(learning.gram_numbers, name))
    for name in ("4A", "4D", "4E", "4F"):
        data = partial(learning.decoupling_from, name)
        made[name] = (data, learning.draw_decoupling, learning.decoupling_numbers)
    for name, what in (("5D", "loss"), ("5E", "forgetting")):
        made[name] = (only, partial(continual.draw_table, what), partial(continual.table_numbers, what))
    captions, shared = captions_of(__name__)
    values: dict[str, object] = {"rate": RATE, "kick": KICK}
    values |= {name: text.format(**values) for name, text in shared.items()}
    every = (
        PaperFigure(name, text.format(**values), *made[name], runs=TRAINED.get(name)) for name, text in captions.items()
    )
    return Paper("prior-knowledge", "braun2022", tuple(every))
