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


def test_the_answer_is_one_document_with_a_row_per_point(shell: Shell, files: tuple[str, str]) -> None:
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


def test_tables_that_cannot_be_are_refused(shell: Shell, files: tuple[str, str], tmp_path: Path) -> None:
    Path(files[1]).write_text("nodes,gpus,micro_batch\n1,2,8\n4,2,8\n")
    code, out, err = shell("what-if", "step-time", "--measured", files[0], "--points", files[1], "--json")
    assert (code, out) == (2, "")
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
