"""The verdict of a compression.

Recommended is what is measurably faster and good enough, or nothing.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from workbench.cli.options import next_commands
from workbench.experiment import Experiment
from workbench.foundation.errors import RunError
from workbench.foundation.events import (
    CommandHandled,
    Event,
    TrialEnded,
    TrialEnqueued,
    TrialProposed,
)
from workbench.runs.bundles.bundle import choose_trial
from workbench.runs.event_lines import Narrator
from workbench.store.history import History
from workbench.store.history.compression import compressed, describe_way, is_compression

EXPERIMENT = Experiment(
    train={
        "name": "package.module:function",
        "base_run": "digits-1",
        "base_trial": 3,
        "base_metric": "val_accuracy",
        "base_value": 0.99,
    },
    objectives=[
        {"metric": "latency_ratio", "goal": "minimize"},
        {"metric": "val_accuracy", "goal": "maximize"},
    ],
    constraints=[
        {"metric": "latency_ratio_high", "at_most": 0.97},
        {"metric": "drop", "at_most": 0.005},
        {"metric": "size_bytes", "at_most": 500_000},
        {"metric": "latency_s", "at_most": 0.005},
    ],
    search={"quantiser": {"choices": ["none", "dynamic", "static"]}},
)


def trial(number: int, ratio: float, *, drop: float = 0.0, **values: float) -> list[Event]:
    measured = {
        "latency_ratio": ratio,
        "latency_ratio_low": ratio - 0.01,
        "latency_ratio_high": ratio + 0.01,
        "drop": drop,
        "val_accuracy": 0.99 - drop,
        "size_bytes": 1e5,
        "size_ratio": 0.25,
        "latency_s": 1e-4,
    }
    params: dict[str, Any] = {"quantiser": "static", "calibration": "minmax"}
    return [
        TrialProposed(trial=number, params=params, configuration=number, repeat=0, seed=number),
        TrialEnded(
            trial=number, attempt=0, state="complete", values={**measured, **values}, step=1
        ),
    ]


def verdict(*events: list[Event]) -> Any:
    return compressed(History.of(EXPERIMENT, [event for batch in events for event in batch]))


def test_the_fastest_that_is_good_enough_is_recommended_and_the_others_state_why_not() -> None:
    chosen = verdict(
        trial(0, 1.0),
        trial(1, 2.3),
        trial(2, 0.42, drop=0.003),
        trial(3, 0.3, drop=0.02),
        trial(4, 0.6),
        trial(5, 0.4, size_bytes=2e6),
        trial(6, 0.4, latency_s=0.008),
    )
    assert chosen.recommended.number == 2
    assert (
        chosen.words
        == "trial 2 is recommended instead of trial 3 of digits-1: 0.42 (0.41 to 0.43) of the"
        " base's latency and 25% of its size, 0.3 points less"
    )
    assert chosen.lost == {
        0: "not faster: 1 of the base's latency",
        1: "not faster: 2.3 of the base's latency",
        3: "2 points less, but the limit is 0.5",
        4: "not the fastest: 0.6 of the base's latency",
        5: "1.91 MiB, but the limit is 488 KiB",
        6: "8 ms per call, but the limit is 5 ms",
    }


@pytest.mark.parametrize(
    "events", [(trial(0, 1.0), trial(1, 2.3)), (trial(0, 0.965),), (trial(0, 0.5, drop=0.1),)]
)
def test_nothing_is_recommended_where_nothing_pays(events: tuple[list[Event], ...]) -> None:
    chosen = verdict(*events)
    assert chosen.recommended is None
    assert chosen.words.startswith("keep trial 3 of digits-1: no trial is faster within the limits")


def test_where_nothing_is_recommended_the_nearest_names_the_limits_that_it_misses() -> None:
    as_it_is = trial(0, 1.0)
    as_it_is[0] = as_it_is[0].model_copy(update={"params": {"quantiser": "none"}})
    slower, larger = trial(1, 1.2), trial(2, 0.5, size_bytes=600_000, drop=0.01)
    assert verdict(as_it_is, slower, larger).words.endswith(
        ". Trial 2 comes nearest: 1 points less, but the limit is 0.5; "
        "586 KiB, but the limit is 488 KiB"
    )
    assert verdict(as_it_is, slower).words.endswith(
        ". Trial 1 comes nearest: not faster: 1.2 of the base's latency"
    )
    assert verdict(as_it_is).words.endswith("within the limits")


def test_an_export_of_nothing_that_pays_names_the_export_of_the_base() -> None:
    history = History.of(EXPERIMENT, trial(0, 1.0))
    run: Any = SimpleNamespace(run_id="digits-compressed-1", experiment=EXPERIMENT)
    with pytest.raises(
        RunError, match="nothing is recommended: keep trial 3 of digits-1"
    ) as refused:
        choose_trial(run, history, None)
    assert 'wb.attach("digits-1").export("best", trial=3, format="onnx")' in str(refused.value)
    assert choose_trial(run, history, 0).number == 0


def test_what_could_be_tried_instead_is_named_where_nothing_pays() -> None:
    commands = next_commands(
        "digits-compressed-1", "complete", History.of(EXPERIMENT, trial(0, 1.0))
    )
    assert [" ".join(line.split("  ")[-1].split()) for line in commands] == [
        "workbench extend digits-compressed-1 --more-trials 10",
        "workbench compress digits-1 --trial 3 --constraint drop=0.02",
        "workbench export digits-1 --to best --trial 3 --format onnx",
    ]


def test_configurations_with_which_every_compression_begins_have_no_lines() -> None:
    history = History(EXPERIMENT)
    narrator = Narrator(history)

    def lines(*events: Event) -> list[str | None]:
        commands = []
        for event in events:
            history.apply(event)
            commands.append(narrator.line_of(event))
        return commands

    enqueued = TrialEnqueued(params={"quantiser": "static"})
    handled = CommandHandled(command=1, kind="enqueue", done=True, message="next")
    refused = handled.model_copy(update={"done": False, "message": "no room"})
    assert lines(enqueued, handled, refused) == [None, None, "enqueue: rejected: no room"]
    assert lines(*trial(0, 1.0), enqueued, handled)[-2:] == ["enqueued quantiser=static", None]


def test_a_verdict_needs_measurements() -> None:
    assert verdict().words == "no trial has been measured yet"


def test_a_compression_is_known_by_the_options_of_its_function() -> None:
    assert is_compression(EXPERIMENT)
    assert not is_compression(EXPERIMENT.replace(train="package.module:other"))


@pytest.mark.parametrize(
    ("params", "words"),
    [
        ({"pruning": 0.0, "rank": 1.0, "quantiser": "none", "epochs": 0}, "no compression"),
        (
            {"pruning": 0.5, "epochs": 3, "quantiser": "static", "calibration": "entropy"},
            "50% of the channels pruned, 3 epochs of fine-tuning, static int8 (entropy)",
        ),
        ({"rank": 0.25, "quantiser": "dynamic"}, "25% of the rank, dynamic int8"),
    ],
)
def test_a_way_to_compress_is_described(params: dict[str, Any], words: str) -> None:
    assert describe_way(params) == words
