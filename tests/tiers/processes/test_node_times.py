"""The time of a node is what the profiler states, without what profiling adds, and in seconds."""

from __future__ import annotations

from pathlib import Path

import pytest

from workbench.tiers.processes import profile_runner


def test_what_profiling_adds_is_taken_away_and_other_nodes_count_to_the_one_before(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    profiles = {
        "idle.onnx": {"nothing": [2, 2, 2, 2], "no more": [4, 4, 4, 4]},
        "whole.onnx": {
            "conv": [103, 103, 103, 9000],  # one call that something else interrupted
            "reorder": [13, 13, 13, 13],  # a layout, added by ONNX Runtime
            "out_nchwc": [53, 53, 53, 53],  # the second node, by the name of its output
            "relu": [1, 1, 1, 1],  # less than profiling adds
        },
    }
    monkeypatch.setattr(profile_runner, "_profile", lambda graph, *_: profiles[graph.name])
    found = profile_runner.node_times_s(
        Path("whole.onnx"),
        Path("idle.onnx"),
        {},
        [("conv", "a"), ("second", "out"), ("relu", "b")],
        threads=1,
        num_calls=4,
    )
    assert found == pytest.approx({"conv": 110e-6, "second": 50e-6, "relu": 0.0})
