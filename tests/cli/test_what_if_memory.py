from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.builders.divided_plans import true_peak_gb
from tests.services.shell import Shell
from workbench.hardware.performance.parallel_plans import ModelShape, ParallelPlan

SMALL = ModelShape(layers=12, hidden=1536, feed_forward=4096, vocabulary=32_000, sequence=2048)
LARGE = ModelShape(layers=24, hidden=2560, feed_forward=7680, vocabulary=32_000, sequence=2048)
MEASURED = [
    ParallelPlan(replicas, stages, tensor, batch, 8, zero=zero, shape=SMALL)
    for replicas, stages, tensor, zero in ((4, 1, 1, 0), (4, 1, 1, 1), (1, 4, 1, 0), (1, 1, 4, 0))
    for batch in (1, 4)
]
POINTS = [ParallelPlan(1, 2, 2, batch, 8, shape=LARGE) for batch in (1, 8)]
_OF_PLAN = ("nodes", "replicas", "stages", "tensor", "zero", "micro_batch", "accumulation")
_OF_SHAPE = ("layers", "hidden", "feed_forward", "vocabulary", "sequence")


def write(path: Path, plans: list[ParallelPlan], *, with_peaks: bool) -> str:
    lines = [",".join((*_OF_SHAPE, *_OF_PLAN, *(["memory_gb"] if with_peaks else [])))]
    for plan in plans:
        cells = [getattr(plan.shape, name) for name in _OF_SHAPE] + [
            getattr(plan, name) for name in _OF_PLAN
        ]
        lines.append(",".join(map(str, [*cells, true_peak_gb(plan)] if with_peaks else cells)))
    path.write_text("\n".join(lines))
    return str(path)


@pytest.fixture
def files(tmp_path: Path) -> tuple[str, str]:
    return (
        write(tmp_path / "measured.csv", MEASURED, with_peaks=True),
        write(tmp_path / "points.csv", POINTS, with_peaks=False),
    )


def test_another_model_is_predicted_from_few_peaks(shell: Shell, files: tuple[str, str]) -> None:
    answer = shell.json("what-if", "memory", "--measured", files[0], "--points", files[1])
    assert list(answer) == ["points"]
    assert [list(point) for point in answer["points"]] == [
        ["memory_gb", "low_gb", "high_gb", "extrapolated"]
    ] * 2
    for predicted, plan in zip(answer["points"], POINTS, strict=True):
        assert predicted["low_gb"] < true_peak_gb(plan) < predicted["high_gb"]
        assert predicted["memory_gb"] == pytest.approx(true_peak_gb(plan), rel=0.25)


def test_people_get_a_table(shell: Shell, files: tuple[str, str]) -> None:
    code, out, _ = shell("what-if", "memory", "--measured", files[0], "--points", files[1])
    assert code == 0
    assert [
        word for word in ("layers", "tensor", "memory", "low", "high", "GB") if word not in out
    ] == []


def test_columns_that_lack_are_one_or_unknown(shell: Shell, tmp_path: Path) -> None:
    measured, points = tmp_path / "measured.csv", tmp_path / "points.csv"
    measured.write_text("micro_batch,memory_gb\n1,3\n2,4\n4,6\n")
    points.write_text("micro_batch,feed_forward\n3,\n3,1024\n")
    plain, known = shell.json(
        "what-if", "memory", "--measured", str(measured), "--points", str(points)
    )["points"]
    assert plain["memory_gb"] == pytest.approx(5.0, rel=0.1)
    assert not plain["extrapolated"]
    assert known["memory_gb"] < plain["memory_gb"]


@pytest.mark.parametrize(
    ("heads", "row", "problem"),
    [
        ("zero", "5", "column zero: '5' is not valid"),
        ("replicas,nodes", "2,4", "column nodes: 2 GPUs cannot be on 4 nodes"),
        (
            "replicas,tensor,gpus",
            "2,4,16",
            "column gpus: 2 replicas x 1 stages x 4 tensor parts are not 16 GPUs",
        ),
        ("micro_batch", "nan", "column micro_batch: 'nan' is not valid"),
    ],
)
def test_plans_that_cannot_be_are_refused(
    shell: Shell, files: tuple[str, str], heads: str, row: str, problem: str
) -> None:
    Path(files[1]).write_text(f"{heads}\n{row}\n")
    code, out, err = shell(
        "what-if", "memory", "--measured", files[0], "--points", files[1], "--json"
    )
    assert (code, json.loads(out)["ok"]) == (2, False)
    assert f"points.csv, line 2, {problem}" in " ".join(err.split())


def test_peaks_that_no_device_has_are_refused(shell: Shell, files: tuple[str, str]) -> None:
    Path(files[0]).write_text("memory_gb\n1e300\n")
    code, _, err = shell("what-if", "memory", "--measured", files[0], "--points", files[1])
    assert code == 2
    assert "column memory_gb" in err
