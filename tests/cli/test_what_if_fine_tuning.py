from __future__ import annotations

from pathlib import Path

import pytest

from tests.services.shell import Shell

HEADS = "parameters_b,active_b,base,learning_rate,rank"
POINTS = ["3,3,true,1e-4,16", "3,3,true,3e-4,16", "3,3,true,1e-3,64", "3,3,true,1e-2,64"]


@pytest.fixture
def points(tmp_path: Path) -> str:
    path = tmp_path / "points.csv"
    path.write_text("\n".join([HEADS, *POINTS]))
    return str(path)


def test_each_point_gets_a_loss_an_interval_and_a_chance(shell: Shell, points: str) -> None:
    answer = shell.json("what-if", "adapter", "--points", points)
    assert list(answer) == ["points"]
    assert [list(point) for point in answer["points"]] == [
        ["excess_nll", "low", "high", "diverges"]
    ] * 4
    losses = [point["excess_nll"] for point in answer["points"]]
    assert losses.index(min(losses)) == 2
    assert losses.index(max(losses)) == 3


def test_people_see_which_row_to_choose(shell: Shell, points: str) -> None:
    code, out, _ = shell("what-if", "adapter", "--points", points)
    assert code == 0
    (best,) = [line for line in out.splitlines() if line.rstrip().endswith("best")]
    assert best.split()[:3] == ["3B", "0.001", "64"]


def test_measured_trainings_replace_the_included_law(
    shell: Shell, points: str, tmp_path: Path
) -> None:
    measured = tmp_path / "measured.csv"
    # Here, the lowest rate is the best by far.
    rows = [
        f"{size},{size},true,{rate},{rank},{0.7 + 100 * rate}"
        for size in (1, 3, 9)
        for rate in (1e-4, 3e-4, 1e-3)
        for rank in (16, 64)
    ]
    measured.write_text("\n".join([f"{HEADS},test_nll", *rows]))
    answer = shell.json("what-if", "adapter", "--points", points, "--measured", str(measured))
    losses = [point["excess_nll"] for point in answer["points"]]
    assert losses == sorted(losses)


@pytest.mark.parametrize(
    ("row", "problem", "allowed"),
    [
        ("3,3,maybe,1e-4,16", "column base: 'maybe' is not valid", "true or false"),
        ("3,3,true,-1,16", "column learning_rate: '-1' is not valid", "greater than 0"),
        ("3,3,true,1e-4,0.5", "column rank: '0.5' is not valid", "whole number"),
    ],
)
def test_a_wrong_cell_is_named_with_its_line(
    shell: Shell, tmp_path: Path, row: str, problem: str, allowed: str
) -> None:
    path = tmp_path / "points.csv"
    path.write_text(f"{HEADS}\n{row}\n")
    code, _, err = shell("what-if", "adapter", "--points", str(path))
    plain = " ".join(err.split())
    assert code == 2
    assert problem in plain
    assert "line 2" in plain
    assert allowed in plain


PLANS = "method,parameters_b,micro_batch,gpu_memory_gb\nlora,8,1,24\nqlora,8,1,24\nfull,8,1,24\n"


def test_the_memory_of_a_fine_tuning_is_known_before(shell: Shell, tmp_path: Path) -> None:
    path = tmp_path / "plans.csv"
    path.write_text(PLANS)
    answer = shell.json("what-if", "fine-tuning", "--points", str(path))
    assert [list(point) for point in answer["points"]] == [
        ["memory_gb", "low_gb", "high_gb", "fits", "seconds_per_step"]
    ] * 3
    low_rank, quantised, full = answer["points"]
    assert quantised["memory_gb"] < low_rank["memory_gb"] < full["memory_gb"]
    assert (quantised["fits"], full["fits"]) == (True, False)
    assert low_rank["seconds_per_step"] is None
    code, out, _ = shell("what-if", "fine-tuning", "--points", str(path))
    assert code == 0
    ends = {line.split()[0]: line.rstrip() for line in out.splitlines() if line.strip()}
    assert ends["qlora"].endswith(" fits")
    assert ends["full"].endswith("does not fit")


def test_other_names_of_columns_mean_the_same(shell: Shell, tmp_path: Path) -> None:
    path, measured = tmp_path / "plans.csv", tmp_path / "measured.csv"
    path.write_text("method,targets,batch\nLORA,q_proj+v_proj,4\n")
    measured.write_text(
        "method,targets,batch,memory_max_gb,train_s,steps\nLORA,q_proj+v_proj,4,20.5,1000,5000\n"
    )
    answer = shell.json(
        "what-if", "fine-tuning", "--points", str(path), "--measured", str(measured)
    )
    (point,) = answer["points"]
    assert point["memory_gb"] == pytest.approx(20.5, rel=0.05)
    assert point["seconds_per_step"] == pytest.approx(0.2, rel=0.05)
    path.write_text("method,targets,adapted\nLORA,q_proj,v_proj\n")
    code, _, err = shell("what-if", "fine-tuning", "--points", str(path))
    assert code == 2
    assert "both adapted and targets" in " ".join(err.split())
