from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.services.shell import Shell, run_without

MEASURED = """nodes,gpus,micro_batch,step_time_s
1,1,4,0.455
1,1,12,0.920
1,4,4,0.530
1,4,12,0.957
2,2,4,1.225
2,2,12,1.481
"""
POINTS = "nodes,gpus,micro_batch\n1,2,8\n2,2,8\n4,16,8\n"


@pytest.fixture
def files(tmp_path: Path) -> tuple[str, str]:
    (tmp_path / "measured.csv").write_text(MEASURED)
    (tmp_path / "points.csv").write_text(POINTS)
    return str(tmp_path / "measured.csv"), str(tmp_path / "points.csv")


def test_the_answer_is_one_document_with_a_row_per_point(
    shell: Shell, files: tuple[str, str]
) -> None:
    answer = shell.json("what-if", "step-time", "--measured", files[0], "--points", files[1])
    assert list(answer) == ["points"]
    assert [list(point) for point in answer["points"]] == [
        ["step_time_s", "low_s", "high_s", "extrapolated"]
    ] * 3
    assert [point["extrapolated"] for point in answer["points"]] == [False, False, True]
    node, network, _ = answer["points"]
    # Measured, though not told: 0.712 s and 1.399 s.
    assert node["low_s"] < 0.712 < node["high_s"]
    assert network["low_s"] < 1.399 < network["high_s"]
    assert network["step_time_s"] == pytest.approx(1.399, rel=0.1)


def test_people_get_a_table(shell: Shell, files: tuple[str, str]) -> None:
    code, out, _ = shell("what-if", "step-time", "--measured", files[0], "--points", files[1])
    assert code == 0
    assert [word for word in ("nodes", "micro batch", "low", "high") if word not in out] == []
    assert out.count("extrapolated") == 1
    assert "16" in out.splitlines()[-1]


def test_tables_that_cannot_be_are_refused(
    shell: Shell, files: tuple[str, str], tmp_path: Path
) -> None:
    Path(files[1]).write_text("nodes,gpus,micro_batch\n1,2,8\n4,2,8\n")
    code, out, err = shell(
        "what-if", "step-time", "--measured", files[0], "--points", files[1], "--json"
    )
    assert (code, json.loads(out)["ok"]) == (2, False)
    assert "points.csv, line 3, column gpus" in err
    code, _, err = shell(
        "what-if", "step-time", "--measured", str(tmp_path / "none.csv"), "--points", files[1]
    )
    assert code == 2
    assert "none.csv" in err


def test_nothing_heavy_is_loaded(files: tuple[str, str]) -> None:
    words = ["what-if", "step-time", "--json", "--measured", files[0], "--points", files[1]]
    out = run_without("torch ray pandas optuna scipy", words)
    assert len(json.loads(out)["points"]) == 3


ONE_WAY = """replicas,stages,tensor,micro_batch,accumulation,step_time_s
4,1,1,1,4,0.40
4,1,1,4,4,1.30
2,1,1,1,4,0.40
1,4,1,1,4,0.19
1,4,1,4,4,0.60
1,2,1,1,4,0.26
1,1,4,1,4,0.17
1,1,4,4,4,0.42
1,1,2,1,4,0.25
"""


def test_plans_that_divide_in_two_ways_are_predicted_from_one(shell: Shell, tmp_path: Path) -> None:
    measured, points = tmp_path / "measured.csv", tmp_path / "points.csv"
    measured.write_text(ONE_WAY)
    points.write_text(
        "stages,tensor,gpus,accumulation,micro_batch\n2,2,4,4,1\n2,2,4,16,1\n2,2,4,4,64\n"
    )
    words = ["what-if", "step-time", "--measured", str(measured), "--points", str(points)]
    usual, long, wide = shell.json(*words)["points"]
    # Between the plans that divide as far in one way.
    assert 0.12 < usual["step_time_s"] < 0.26
    assert 3.0 < long["step_time_s"] / usual["step_time_s"] < 4.0
    assert [row["extrapolated"] for row in (usual, long, wide)] == [False, True, True]
    code, out, _ = shell(*words)
    assert code == 0
    assert [
        word for word in ("replicas", "stages", "tensor", "accumulation") if word not in out
    ] == []


@pytest.mark.parametrize(
    ("row", "problem"),
    [
        ("3,2,4,1", "column gpus: 3 GPUs cannot be divided into 2 stages x 4 tensor parts"),
        ("8,2,4,0", "column accumulation: '0' is not valid"),
        ("8,2,4,99999999999", "column accumulation: '99999999999' is not valid"),
        ("8,-2,4,1", "column stages: '-2' is not valid"),
    ],
)
def test_divided_plans_that_cannot_be_are_refused(
    shell: Shell, tmp_path: Path, row: str, problem: str
) -> None:
    measured, points = tmp_path / "measured.csv", tmp_path / "points.csv"
    measured.write_text(ONE_WAY)
    points.write_text(f"gpus,stages,tensor,accumulation\n{row}\n")
    code, out, err = shell(
        "what-if", "step-time", "--measured", str(measured), "--points", str(points), "--json"
    )
    assert (code, json.loads(out)["ok"]) == (2, False)
    assert f"points.csv, line 2, {problem}" in " ".join(err.split())


def test_divided_plans_need_a_measurement(shell: Shell, tmp_path: Path) -> None:
    measured = tmp_path / "measured.csv"
    measured.write_text(ONE_WAY.splitlines()[0])
    code, _, err = shell(
        "what-if", "step-time", "--measured", str(measured), "--points", str(measured)
    )
    assert code == 2
    assert "contains no measurements" in err
