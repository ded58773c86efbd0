"""The figures of "Exact learning dynamics of deep linear networks with prior knowledge" (braun2022), made again.

The settings in the print's appendix are unreadable: sizes, scales, learning rates and seeds here are ours, but for the
rates of 2C. Left out are the schematics (1A, 3A, 4B). The exact flow is used in place of the printed eq. (11), which
has no bottlenecks and no saddles; `printed.printed_grams` is that equation to the letter.
"""

from __future__ import annotations

from functools import partial
from typing import Any

from learncast.papers.paper import Paper, PaperFigure
from learncast.papers.prior_knowledge import continual, learning, revision
from learncast.papers.prior_knowledge.descent import RATE, draw_functions, gaps
from learncast.papers.prior_knowledge.kingdom import structure
from learncast.papers.prior_knowledge.revision import KICK
from learncast.papers.runs import joined, only

#: Figures for which networks are trained in torch, with what is run for each.
TRAINED = {
    **dict.fromkeys(("2C", "2D"), learning.architecture_runs),
    **dict.fromkeys(("5B", "5C"), continual.pair_runs),
    **dict.fromkeys(("5D", "5E"), continual.five_runs),
    "6A": revision.reversal_runs,
    **dict.fromkeys(("6E", "6F", "6G", "6H"), revision.revision_runs),
}

_KICKED = f"the flow switches when all is learned, and in training every weight then gets noise of {KICK:g}"
_SCALED = "scaled to a plane, all times at once, by Sammon's stress from classical scaling; open circles at the start"
_GRAMS = "Q Q^T before and after training. Ours: 32 hidden units, weights of 0.002 or 0.35, rate 0.005."
_COUPLED = f"Ours: the target, the shape of the start, its scales 0.02, 0.3 and 1.5, rate {RATE:g}."
_REVISED = (
    "first the living kingdom, then its revision; from small weights above, from large below. After the swap the flow "
    "ends on a saddle that training leaves. Ours: 16 hidden units, weights of 0.003 and 0.25, rates 0.01 and "
    f"{RATE:g}; {_KICKED}."
)

_FORGETTING = (
    "Ours: 2 to 8 inputs and outputs, 0 to 4 hidden units more than the fewer of them, rate 0.02, 4000 steps a task, "
    "balanced starts of 0.1; 40 trials of a linear teacher with noise of 0.2, or 16 trials with random targets of "
    "variance 1; draws that the flow does not learn in time are set aside."
)
_FIVE = "Ours: 5-6-4 networks, rate 0.02, 4000 steps a task, targets as in 5B; the first sequence is drawn."

CAPTIONS = {
    "1B": f"Outputs for unit inputs over training from small balanced weights. Ours: 3-5-2 network, rate {RATE:g}.",
    "1C": f"Outputs for unit inputs over training from large balanced weights. Ours: 3-5-2 network, rate {RATE:g}.",
    "1D": f"Outputs for unit inputs over training from another task's weights. Ours: 3-5-2 network, rate {RATE:g}.",
    "2A": f"Loss, function, similarities and tangent kernel from small balanced weights. Ours: 3-4-2, rate {RATE:g}.",
    "2B": f"Loss, function, similarities and tangent kernel from large balanced weights. Ours: 3-4-2, rate {RATE:g}.",
    "2C": "Largest deviation of the flow's loss from training's against the learning rate from 0.05 to 0.0005, a line "
    "per random network. Ours: 2 to 8 inputs, hidden units and outputs, bottlenecks too, 40 trials, trained on all at "
    "every step; starts that never learn a mode are left out.",
    "2D": "Learning curves of the networks marked in 2C (inputs-hidden-outputs) at the largest rate, 0.05.",
    "3B": "Singular value decomposition and similarity matrices of the hierarchy. Ours: the names of the items.",
    "3C": f"Small random weights end with the task's own similarities: {_GRAMS}",
    "3D": f"Large random weights, unbalanced and so trained without theory, keep their own similarities: {_GRAMS} Each "
    "block has the scale that is written into it.",
    "3E": f"Large zero-balanced weights end with the task's own similarities: {_GRAMS}",
    "3F": "Learning curves from the starts of 3C, 3D and 3E; theory for the balanced one.",
    "4A": f"Strength within and between two modes, unequal diagonal target. {_COUPLED}",
    "4C": "The target matrices of 4D, E and F. Ours: their entries.",
    "4D": f"Strength within and between two modes, dense target. {_COUPLED}",
    "4E": f"Strength within and between two modes, unequal diagonal target. {_COUPLED}",
    "4F": f"Strength within and between two modes, equal diagonal target; exact time of the peak (dashed). {_COUPLED}",
    "5A": f"Three tasks in turn: network function, and loss of each task. Ours: 3-5-2 network, rate {RATE:g}.",
    "5B": "Forgetting of a first task by learning a second: measured, against what the linear theory tells before "
    f"training. {_FORGETTING} Tanh and ReLU networks forget more than told where they fit what no linear map can, the "
    "random targets; from a linear teacher they forget about as much.",
    "5C": "Imbalance of the layers in the networks of 5B, |W2^T W2 - W1 W1^T| / |W2^T W2 + W1 W1^T|: linear networks "
    "keep it but for the learning rate, tanh and ReLU networks lose it. Ours: the measure.",
    "5D": "Loss of five tasks after each was learned: each square told by the linear theory above and "
    f"trained below. {_FIVE}",
    "5E": f"Change of the losses of 5D from stage to stage, positive is forgotten: told above, trained below. {_FIVE}",
    "6A": "A task and its opposite. Left: the flow ends on the saddle at 0, training goes on. Right: how long the "
    "saddle holds training from the learned weights with noise added, and the flow integrated from there. Ours: "
    f"3-5-2 network, rate 0.01; on the left {_KICKED}.",
    "6B": "The same with one layer: nothing slows. Ours: rate 0.01.",
    "6C": "Features (rows) of the items in the living kingdom and its revisions. Ours: the order by colour.",
    "6D": "Singular value decomposition and similarity matrices of the two revisions.",
    "6E": f"Loss: {_REVISED} Dashed, the control that 'no speed advantage' needs: the revision from five random "
    "balanced starts with the variance of the weights that had learned. At these settings the swap takes longer after "
    "the living kingdom than from any of them, as printed, and the colour hierarchy less, against the print.",
    "6F": f"Outputs for one item: {_REVISED}",
    "6G": f"Outputs for the items while the living kingdom is learned from small and from large weights, in one map, "
    f"{_SCALED}.",
    "6H": f"Outputs for the items while the revision is learned, {_SCALED}, a cross where the flow is stuck.",
}


def paper() -> Paper:
    """All figures; how many networks are trained is a matter of the preset."""
    outputs, everything, revised = learning.outputs_from, learning.everything_from, revision.revised
    both, all_five = gaps("network_function", "loss"), gaps(*learning.QUANTITIES)
    pairs, five, shown = partial(joined, "network"), partial(joined, "sequence"), learning.draw_structure
    starts, ends = ("small weights", "large weights"), ("two fish swapped", "colour hierarchy")
    made: dict[str, tuple[Any, Any, Any]] = {
        "1B": (partial(outputs, "1B"), partial(draw_functions, "1B  from small weights"), both),
        "1C": (partial(outputs, "1C"), partial(draw_functions, "1C  from large weights"), both),
        "1D": (partial(outputs, "1D"), partial(draw_functions, "1D  from learned weights"), both),
        "2A": (partial(everything, "2A"), partial(learning.draw_everything, "2A  small start"), all_five),
        "2B": (partial(everything, "2B"), partial(learning.draw_everything, "2B  large start"), all_five),
        "2C": (learning.architectures, learning.draw_deviations, learning.deviation_numbers),
        "2D": (learning.five_architectures, learning.draw_five, gaps("loss")),
        "3B": (partial(structure, slice(1)), partial(shown, "3B", slice(1)), learning.structure_numbers),
        "4C": (learning.three_targets, learning.draw_targets, learning.target_numbers),
        "3F": (learning.regimes, learning.draw_regimes, learning.regime_numbers),
        "5A": (continual.three_tasks, continual.draw_sequence, both),
        "5B": (pairs, continual.draw_forgetting, continual.forgetting_numbers),
        "5C": (pairs, continual.draw_imbalance, continual.imbalance_numbers),
        "6A": (only, revision.draw_reversal, revision.reversal_numbers),
        "6B": (revision.shallow_reversal, partial(draw_functions, "6B  reversal, one layer"), revision.shallow_numbers),
        "6C": (structure, revision.draw_features, learning.structure_numbers),
        "6D": (structure, partial(shown, "6D", slice(1, 3)), learning.structure_numbers),
        "6E": (revised, partial(revision.draw_revision, "6E", "loss_in_training"), revision.revision_numbers),
        "6F": (revised, partial(revision.draw_revision, "6F", "item_output"), revision.item_numbers),
        "6G": (partial(revision.paths, 0), partial(revision.draw_paths, "6G", starts), revision.path_numbers),
        "6H": (partial(revision.paths, 1), partial(revision.draw_paths, "6H", ends), revision.path_numbers),
    }
    for name in learning.STARTS:
        made[name] = (learning.regimes, partial(learning.draw_gram, name), partial(learning.gram_numbers, name))
    for name in ("4A", "4D", "4E", "4F"):
        data = partial(learning.decoupling_from, name)
        made[name] = (data, partial(learning.draw_decoupling, name), learning.decoupling_numbers)
    for name, what in (("5D", "loss"), ("5E", "forgetting")):
        made[name] = (five, partial(continual.draw_table, name, what), partial(continual.table_numbers, what))
    figures = (PaperFigure(name, CAPTIONS[name], *made[name], runs=TRAINED.get(name)) for name in CAPTIONS)
    return Paper("prior-knowledge", "braun2022", tuple(figures))
