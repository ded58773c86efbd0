"""What a newcomer is shown: settings worth seeing in every room, and its words explained."""

from __future__ import annotations

from learncast.web.room import Example, Word

_DESCENT = Word(
    ("descent", "steps"),
    "Steps of gradient descent: whole updates of the weights, as people count them.",
    ("learning_rate",),
    ("both stages, descent", "target alone, descent"),
)
_FLOW = Word(
    ("the flow", "flow"),
    "Descent with endlessly many endlessly small steps, the limit that the theory solves; told in the same unit.",
    ("learning_rate",),
    ("both stages", "target alone"),
)
CURRICULUM = (
    Example(
        "Pretraining pays",
        "Press play: stronger targets drive the weights up faster, and stopped in time the network stands on the "
        "target. Then drag the pin along the dark ridge, and off it.",
        {"pin_value": 1.5, "pin_accuracy": 0.65},
    ),
    Example(
        "It hurts",
        "A weaker first task, learned well. It is slower than the target itself, and every step of it is lost.",
        {"pin_value": 0.5, "pin_accuracy": 0.9},
    ),
    Example(
        "Stop early",
        "The same kind of first task, kept up too long: it overshoots and must be unlearned. Move the pin down to 0.4.",
        {"pin_value": 2.5, "pin_accuracy": 0.9},
    ),
    Example(
        "A leaky target",
        "A sum that forgets. A first task with a longer memory starts faster and ends near the target; one with a "
        "shorter memory hurts.",
        {"family": "leaky_integration", "pin_value": 20.0, "pin_accuracy": 0.7},
    ),
    Example(
        "Never learns",
        "The learning rate is too large for the target: descent does not settle, whatever comes first. The flow, which "
        "takes no steps, knows nothing of it.",
        {"learning_rate": 0.05, "pin_value": 1.5, "pin_accuracy": 0.65},
    ),
    Example(
        "Rectified units",
        "ReLU units answer only to inputs of one sign. Their responses are measured on trials, so steps come with an "
        "interval.",
        {"activation": "relu", "pin_value": 1.5, "pin_accuracy": 0.65},
    ),
)

CURRICULUM_WORDS = (
    _DESCENT,
    _FLOW,
    Word(
        ("target × input",),
        "How strongly target and input vary together: units of the target times units of the input.",
        ("target_strength",),
    ),
    Word(("target strength",), "How much the target moves with each input.", ("target_strength", "pin_value")),
    Word(("first task",), "What is trained before the target, and stopped.", ("vary", "vary_leaky"), ("both stages",)),
    Word(
        ("recurrence",),
        "Share of its activity that a unit keeps from one step to the next. It stays as it is.",
        ("recurrence",),
    ),
    Word(
        ("effective strength",),
        "Input weight times output weight: all that the network's answer depends on.",
        ("initial",),
        ("both stages", "target alone"),
    ),
    Word(("the target's optimum", "optimum"), "The strength that answers best.", (), ("the target's optimum",)),
    Word(
        ("accuracy",),
        "1 when the strength is at its optimum, 0.99 when 1% of it is missing.",
        ("accuracy",),
        ("the target's optimum",),
    ),
    Word(
        ("exact", "linear network"),
        "Linear units only add up: what they learn is known in closed form. Open the line for what was measured.",
        ("activation",),
    ),
)

PRIOR_KNOWLEDGE = (
    Example(
        "Knowing A helps B",
        "Press play: the network learns task A, then task B in directions that are turned. Watch the map W2 W1 become "
        "what B asks for, and the loss of A come back.",
        {"time": 0.0},
    ),
    Example(
        "Reversal is faster",
        "Task B asks for nearly the opposite of A. From small weights unlearning is still quicker than beginning: "
        "compare the dashed curve.",
        {"input_angle": 0.0, "output_angle": 170.0, "start_scale": 0.001, "time": 0.0},
    ),
    Example(
        "Never learns",
        "Exactly the opposite: every weight sits where its gradient is zero. Turn the output angle by one degree.",
        {"input_angle": 0.0, "output_angle": 180.0, "time": 0.6},
    ),
    Example(
        "Nothing is forgotten",
        "The same task twice: B is learned at once, and A stays. Turn either angle and see what that costs.",
        {"input_angle": 0.0, "output_angle": 0.0, "second_strength": 2.0, "time": 1.0},
    ),
    Example(
        "Stop early",
        "Task A for 60 steps only: its strongest mode is there, the others are not. What is known is quickly turned.",
        {"knowledge": "steps", "first_steps": 60.0, "time": 0.3},
    ),
    Example(
        "One layer leads",
        "The output layer is much larger than the input layer: all modes are learned at one pace, and at once.",
        {"imbalance": 4.0, "time": 0.3},
    ),
)

PRIOR_KNOWLEDGE_WORDS = (
    Word(
        ("steps",),
        "Steps of gradient descent: whole updates of the weights, as people count them.",
        ("learning_rate",),
    ),
    Word(("flow",), "Descent with endlessly many endlessly small steps, the limit that the theory solves."),
    Word(
        ("modes", "mode"),
        "One independent thing to learn: a pattern of inputs joined to a pattern of outputs. Each has its own pace.",
        ("decay",),
        ("task A, mode", "task B, mode"),
    ),
    Word(
        ("gram matrix",),
        "How alike two channels look to a layer: each number compares the weights of two of them. It does not change "
        "when hidden units are renamed or turned.",
        ("imbalance", "start_scale"),
    ),
    Word(
        ("forgotten",),
        "By how much learning task B raises the loss of task A.",
        ("input_angle", "output_angle"),
        ("loss of task A",),
    ),
    Word(("task A",), "What the network learns first.", ("first_strength", "knowledge"), ("loss of task A",)),
    Word(
        ("task B",),
        "What it learns next, in turned directions.",
        ("second_strength", "input_angle", "output_angle"),
        ("loss of task B", "task B unprepared"),
    ),
    Word(
        ("unprepared", "without prior knowledge"),
        "Task B from the start, without any of task A.",
        ("knowledge",),
        ("task B unprepared",),
    ),
    Word(("target × input", "target/input"), "Units of the target for one unit of the input."),
    Word(
        ("balanced layers", "balance"),
        "Both layers hold the same share of the map, as after training from very small weights.",
        ("start", "imbalance"),
    ),
)

RECURRENCE = (
    Example(
        "Remember it all",
        "Press play: the answer to each lag grows into the points. Drag a point, and see the best recurrence follow.",
        {"series": (1.0, *[0.5] * 9), "topic": "order", "time": 0.0},
    ),
    Example(
        "A perfect fit",
        "A target that halves with age is what one unit can do: nothing is left unexplained.",
        {"series": tuple(0.5**k for k in range(10)), "topic": "order", "time": 0.0},
    ),
    Example(
        "Forget the past",
        "The newest input counts ten times as much as any other. The best recurrence hardly remembers; let the past "
        "count more and it will.",
        {"series": (1.0, *[0.1] * 9), "topic": "transition", "time": 1.0},
    ),
    Example(
        "Unstable",
        "The target ignores the newest inputs: the best recurrence grows with age, and on longer trials without bound.",
        {"series": (0.0, 0.0, 0.0, *[1.0] * 7), "topic": "stability", "time": 1.0},
    ),
    Example(
        "One lag too far",
        "Only the oldest input counts: no finite recurrence is best, and training goes nowhere. Give the others a "
        "little.",
        {"series": (*[0.0] * 9, 1.0), "topic": "order", "time": 1.0},
    ),
    Example(
        "Two answers",
        "A wave. Two recurrences do equally well, one that forgets and one that explodes: where training ends "
        "depends on its start.",
        {"series": (1.0, 0.5, -0.5, -1.0, -0.5, 0.5, 1.0, 0.5, -0.5, -1.0), "topic": "transition", "time": 1.0},
    ),
)

RECURRENCE_WORDS = (
    Word(
        ("steps",),
        "Steps of gradient descent: whole updates of the weights, as people count them.",
        ("learning_rate", "steps"),
    ),
    Word(("flow",), "Descent with endlessly many endlessly small steps, the limit that the theory solves."),
    Word(
        ("modes", "mode"),
        "One independent thing to learn. The first is the series as drawn, the second a weaker and earlier copy.",
        ("modes", "ratio", "shift"),
        ("mode",),
    ),
    Word(
        ("best recurrence", "recurrence"),
        "Share b of its activity that a unit keeps from one step to the next; an input of age k counts b to the "
        "power k.",
        ("recurrence",),
        ("best", "mode 0"),
    ),
    Word(("lag",), "How many steps before the readout an input came.", ("series",), ("series s",)),
    Word(
        ("unexplained",),
        "Share of the target's variance that the answer misses.",
        ("series",),
        ("unexplained", "without recurrence"),
    ),
    Word(("unstable", "stable", "marginal"), "Whether activity grows, decays or stays on longer trials.", ("reach",)),
    Word(("exponential",), "What one unit can answer: a strength times b to the power of the lag.", (), ("best",)),
)

WINDOW_WORDS = (
    Word(
        ("envelope",),
        "How far a gradient at a lag still moves the weights: what the gates let through, times the optimiser's rates.",
        (),
        ("with the optimiser", "gates"),
    ),
    Word(
        ("longest lag", "window"),
        "The longest lag whose signal stands out of the noise with so many sequences.",
        ("sample_size",),
        ("against",),
    ),
    Word(("threshold",), "Signal-to-noise ratio from which a lag counts.", ("threshold",), ("needed",)),
    Word(("sequences",), "How many sequences the model is trained on.", ("sample_size",), ("chosen",)),
    Word(
        ("without gaps",),
        "The longest lag below which every lag is learnable too.",
        (),
        ("the first, without gaps",),
    ),
    Word(("time scale",), "Steps in which a unit forgets all but a third of what it holds.", ("layer",), ("units",)),
)


def window_examples(sequences: float, threshold: float) -> tuple[Example, ...]:
    """Settings of a window's room, by how many sequences were diagnosed and at what threshold."""
    fewer, more = max(1.0, float(round(sequences / 20))), min(1e9, 100.0 * sequences)
    strict, lax = min(100.0, round(4 * threshold, 4)), max(0.01, round(threshold / 4, 4))
    return (
        Example(
            "As it was diagnosed", "The red line: with so many sequences, lags up to the step curve can be learned."
        ),
        Example(
            "Too few sequences",
            "With a twentieth of them, noise drowns what the long lags say.",
            {"sample_size": fewer},
        ),
        Example(
            "A hundred times the data",
            "In the shaded part more is asked than was diagnosed: the curve says at least so far.",
            {"sample_size": more},
        ),
        Example("A strict threshold", "Four times the evidence for each lag.", {"threshold": strict}),
        Example("A lax threshold", "A quarter of the evidence: now noise reaches far too.", {"threshold": lax}),
    )
