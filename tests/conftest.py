"""Long cases of tests whose other cases stay in the fast suite."""

from __future__ import annotations

import pytest

#: By file and test: the cases that only `make test-all` runs, or all of them where none is named.
LONG: dict[str, dict[str, tuple[str, ...]]] = {
    "test_balanced_flow.py": {"test_stiff_and_late": ("s t = 1e4",)},
    "test_check.py": {
        "test_other_linear_networks_are_checked_by_their_loss": ("two-layer",),
        "test_every_plan_is_trained_and_compared": (),
    },
    "test_descent.py": {
        "test_batches_at_every_step_drive_the_descent_without_bias": ("end",),
        "test_batch_moments_have_the_wishart_mean_and_covariance": ("6",),
        "test_pooled_batches_are_pooled_unpooled_ones": ("30",),
        "test_until_stops_at_the_first_step_inside": ("static-0.97",),
        "test_the_large_flow_is_that_of_autograd": (),
    },
    "test_detection.py": {"test_fresh_noise_shows_no_window": ("heavy",)},
    "test_linear_rnn_figures.py": {"test_longer_trials": (), "test_terms_of_the_loss": ()},
    "test_optimal.py": {"test_nothing_in_a_box_costs_less_than_its_bound": ("True",)},
    "test_plan.py": {
        "test_several_modes_are_never_beaten": ("2", "3"),
        "test_rotated_tasks_take_as_long_as_their_weights_do_and_no_other_stop_is_better": ("2-3-2",),
    },
    "test_planner.py": {"test_tasks_that_do_not_know_their_targets_are_planned_too": ()},
    "test_prior_knowledge_figures.py": {
        "test_five_losses_are_distances_of_tasks": (),
        "test_linear_forgetting_is_told_before_training": (),
        "test_figure_is_drawn_and_its_numbers_are_numbers": ("6E", "6D"),
        "test_reversal_ends_on_the_saddle_and_training_leaves_it": (),
    },
    "test_recurrent_questions.py": {
        "test_best_recurrence_equals_high_precision_roots": (),
        "test_golden_change_of_the_kernel_is_where_training_ends": (),
        "test_lazy_networks_keep_their_kernel": (),
        "test_late_pulse_is_bistable_where_the_stationary_background_falls": ("11-0.20043-0.20181",),
    },
    "test_response.py": {
        "test_replicas_on_long_ways_are_integrated": ("tanh",),
        "test_descent_of_a_tabulated_unit_is_backpropagation_through_time": ("2-True",),
        "test_descent_reaches_the_flow_at_small_learning_rates": ("sixteen of random sign",),
    },
    "test_simulate.py": {
        "test_a_run_that_was_stopped_ends_as_if_it_never_had": ("two passes in stages",),
        "test_two_passes_start_small_too": (),
        "test_a_plateau_is_not_a_saddle": ("all",),
    },
    "test_solution.py": {
        "test_what_does_not_learn_is_left_alone": ("flow_at_every_step",),
        "test_time_to_is_the_first_entry": ("relu_two_outputs_at_every_step", "flow_at_every_step"),
    },
    "test_study.py": {"test_the_resolved_study_gives_the_same_answers": ("recorded",)},
    "test_training.py": {
        "test_training_approaches_the_theory_in_proportion_to_the_learning_rate": (
            "own channels, every step",
            "same channels, every step",
        )
    },
    "test_training_loop.py": {"test_real_training_keeps_to_the_plan": ()},
}


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        name, _, case = item.name.partition("[")
        cases = LONG.get(item.path.name, {}).get(name)
        if cases is not None and (not cases or case.removesuffix("]") in cases):
            item.add_marker(pytest.mark.slow)
