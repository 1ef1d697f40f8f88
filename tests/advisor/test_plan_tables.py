from __future__ import annotations

from pathlib import Path

import pytest

from workbench.advisor.plan_tables import predict_step_times, read_measured, read_plans, read_points
from workbench.foundation.errors import DataError
from workbench.hardware.performance.step_time import Measurement, Point
from workbench.hardware.performance.topology import Topology


def write(folder: Path, text: str) -> Path:
    path = folder / "table.csv"
    path.write_text(text, encoding="utf-8")
    return path


def test_measured_rows_are_read_with_what_is_known_of_them(tmp_path: Path) -> None:
    text = (
        "nodes,gpus,micro_batch,step_time_s,sync_time_s,gpus_per_node\n"
        "1,1,32,0.1,,\n"
        "2,8,32,0.3,0.2,4 + 4\n"
        "2,4,16.5,0.2,0,3+1\n"
    )
    assert read_measured(write(tmp_path, text)) == [
        Measurement(Topology((1,)), 32.0, 0.1, None),
        Measurement(Topology((4, 4)), 32.0, 0.3, 0.2),
        Measurement(Topology((1, 3)), 16.5, 0.2, 0.0),
    ]


def test_a_file_without_plans_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "plans.csv"
    path.write_text("nodes,gpus,micro_batch\n")
    for read in (read_points, read_plans):
        with pytest.raises(DataError, match="contains no plans to predict"):
            read(path)


def test_points_are_read_and_answered_in_order(tmp_path: Path) -> None:
    points = read_points(
        write(tmp_path, "gpus,nodes,micro_batch,accumulation\n4,1,64,2\n1,1,32,1\n")
    )
    assert points == [Point(Topology((4,)), 64.0, 2), Point(Topology((1,)), 32.0, 1)]
    measured = read_measured(
        write(tmp_path, "nodes,gpus,micro_batch,step_time_s\n1,1,32,0.1\n1,4,32,.15\n")
    )
    larger, smaller = predict_step_times(measured, points)
    assert larger.step_time_s > smaller.step_time_s == pytest.approx(0.1, rel=0.02)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (
            "nodes,gpus,micro_batch,step_time_s\n",
            "contains no measurements; allowed: at least one row",
        ),
        ("nodes,gpus,step_time_s\n1,1,2\n", "has no column micro_batch"),
        ("nodes,gpus,micro_batch,step_time_s\n1,1,8,0\n", "line 2, column step_time_s: '0'"),
        (
            "nodes,gpus,micro_batch,step_time_s\n1,1,8,1\n\n3,2,8,1\n",
            "line 4, column gpus: 2 GPUs cannot be",
        ),
        (
            "nodes,gpus,micro_batch,step_time_s,gpus_per_node\n2,8,8,1,4+3\n",
            (
                r"line 2, column gpus_per_node: 4\+3 is not 8 GPUs; allowed: whole numbers from 1"
                r" whose sum is 8"
            ),
        ),
        (
            "nodes,gpus,micro_batch,step_time_s,gpus_per_node\n2,8,8,1,8\n",
            "line 2, column gpus_per_node: 8 means 1 node, not 2",
        ),
        (
            "nodes,gpus,micro_batch,step_time_s,gpus_per_node\n2,8,8,1,4/4\n",
            r"column gpus_per_node: '4/4' is not valid; allowed: whole numbers joined by \+",
        ),
        (
            "nodes,gpus,micro_batch,step_time_s,sync_time_s\n1,2,8,1,1.5\n",
            (
                "line 2, column sync_time_s: 1.5 s is longer than the step; allowed: at most"
                " step_time_s, 1"
            ),
        ),
    ],
)
def test_what_cannot_be_is_refused_by_column_and_line(text: str, said: str, tmp_path: Path) -> None:
    with pytest.raises(DataError, match=said):
        read_measured(write(tmp_path, text))
