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


def test_a_missing_column_means_unknown_and_alpha_counts(shell: Shell, tmp_path: Path) -> None:
    path = tmp_path / "points.csv"

    def losses_of(*lines: str) -> list[float]:
        path.write_text("\n".join(lines))
        answer = shell.json("what-if", "adapter", "--points", str(path))
        return [point["excess_nll"] for point in answer["points"]]

    few = losses_of("rank,learning_rate,parameters_b", "16,1e-4,3", "16,1e-2,3")
    blank = losses_of(f"{HEADS},alpha", "3,,,1e-4,16,", "3,,,1e-2,16,32")
    assert blank == few
    high, low = losses_of(f"{HEADS},alpha", "3,3,true,1e-4,16,512", "3,3,true,1e-4,16,1")
    assert high < few[0] < low


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
        ("3,3,true,-1,16", "column learning_rate: '-1' is not valid", "from 1e-12 to"),
        ("8e9,,true,1e-4,16", "column parameters_b: '8e9'", "100,000 billion parameters"),
        ("3,3,true,1e300,16", "column learning_rate: '1e300'", "from 1e-12 to 1,000"),
        ("3,3,true,1e-4,1e300", "column rank: '1e300'", "up to 1,000,000"),
        ("3,3,true,1e-4,0.5", "column rank: '0.5' is not valid", "whole number"),
        ("3,5,true,1e-4,16", "5 is more than all 3 billion parameters", "at most parameters_b"),
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


def test_a_folder_is_enough_to_know_what_fits(shell: Shell, tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(
        '{"model_type": "llama", "hidden_size": 2048, "num_hidden_layers": 16,'
        ' "num_attention_heads": 32, "num_key_value_heads": 8, "intermediate_size": 8192,'
        ' "vocab_size": 128256}'
    )
    arguments = ("what-if", "fine-tuning", str(tmp_path), "--micro-batch", "4")
    answer = shell.json(*arguments, "--gpu-memory", "24GB")
    assert [point["method"] for point in answer["points"]] == ["full", "lora", "qlora"]
    assert [point["fits"] for point in answer["points"]] == [False] * 3
    assert answer["points"][1]["nearest"] == {
        "method": "lora",
        "sequence": 2048,
        "micro_batch": 4,
        "recompute": True,
    }
    code, out, _ = shell(*arguments, "--gpu-memory", "24GB", "--method", "lora")
    assert code == 0
    assert "lora fits with --recompute: " in out
    code, out, _ = shell(*arguments, "--gpu-memory", "24GB", "--method", "lora", "--recompute")
    assert "does not fit" not in out


def test_sequences_are_as_long_as_the_model_reads(shell: Shell, tmp_path: Path) -> None:
    config = (
        '{"model_type": "llama", "hidden_size": 768, "num_hidden_layers": 12,'
        ' "num_attention_heads": 12, "intermediate_size": 3072, "vocab_size": 50257'
    )
    (tmp_path / "config.json").write_text(config + ', "max_position_embeddings": 1024}')
    arguments = ("what-if", "fine-tuning", str(tmp_path), "--micro-batch", "32")
    by_default = shell.json(*arguments)
    assert by_default == shell.json(*arguments, "--sequence", "1024")
    code, out, errors = shell(*arguments, "--sequence", "1024")
    assert (code, errors) == (0, "")
    assert "step" not in out, "times are unknown"
    code, _, errors = shell(*arguments, "--sequence", "4096")
    assert code == 0
    assert "reads at most 1,024 tokens" in errors
    assert "sequences of 4,096" in errors
    (tmp_path / "config.json").write_text(config + "}")
    assert shell.json(*arguments) == shell.json(*arguments, "--sequence", "2048")


@pytest.mark.parametrize("method", ["full", "lora", "qlora"])
@pytest.mark.parametrize("others", [(), ("--targets", "q_proj+v_proj", "--micro-batch", "4")])
def test_the_options_of_the_nearest_plan_reproduce_its_memory(
    shell: Shell, tmp_path: Path, method: str, others: tuple[str, ...]
) -> None:
    (tmp_path / "config.json").write_text(
        '{"model_type": "llama", "hidden_size": 2048, "num_hidden_layers": 16,'
        ' "num_attention_heads": 32, "num_key_value_heads": 8, "intermediate_size": 8192,'
        ' "vocab_size": 128256}'
    )
    num_found = 0
    for limit in ("3GB", "4GB", "6GB", "8GB", "12GB"):
        arguments = ("what-if", "fine-tuning", str(tmp_path), "--gpu-memory", limit, *others)
        _, out, _ = shell(*arguments)
        for line in out.splitlines():
            if line.startswith(f"{method} fits with "):
                options, memory = line.removeprefix(f"{method} fits with ").split(": ")
                given = options if "--method" in options else f"--method {method} {options}"
                _, again, _ = shell(*arguments, *given.split())
                (row,) = [row for row in again.splitlines() if row.rstrip().endswith(" fits")]
                assert f" {memory} " in row
                num_found += 1
    assert num_found >= 2


@pytest.mark.parametrize("arguments", [(), (".", "--points", "plans.csv")])
def test_either_a_folder_or_a_table_is_needed(
    shell: Shell, tmp_path: Path, arguments: tuple[str, ...]
) -> None:
    (tmp_path / "plans.csv").write_text(PLANS)
    given = [
        str(tmp_path / argument) if argument.endswith("csv") else argument for argument in arguments
    ]
    code, _, err = shell("what-if", "fine-tuning", *given)
    assert code == 2
    assert "give either the folder of a model, or --points" in " ".join(err.split())


def test_a_rate_far_outside_the_trainings_is_noted(shell: Shell, tmp_path: Path) -> None:
    path = tmp_path / "points.csv"
    path.write_text(f"{HEADS}\n3,3,true,1e-4,16\n3,3,true,1000,16\n")
    code, _, err = shell("what-if", "adapter", "--points", str(path))
    assert code == 0
    assert "learning_rate far outside the trainings" in " ".join(err.split())


def test_a_model_smaller_than_those_of_the_law_is_noted(shell: Shell, tmp_path: Path) -> None:
    path = tmp_path / "points.csv"
    path.write_text(f"{HEADS}\n0.6,0.6,true,1e-4,16\n")
    (tmp_path / "config.json").write_text(
        '{"hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 2, "vocab_size": 100}'
    )
    for arguments in (["--points", str(path)], [str(tmp_path)]):
        code, _, err = shell("what-if", "adapter", *arguments)
        assert code == 0
        assert "With less than 1 billion, its answers are less certain" in " ".join(err.split())
    path.write_text(f"{HEADS}\n1,1,true,1e-4,16\n")
    _, _, err = shell("what-if", "adapter", "--points", str(path))
    assert "less certain" not in err


def test_a_wrong_target_is_an_error(shell: Shell, tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(
        '{"hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 2, "vocab_size": 100}'
    )
    code, _, err = shell("what-if", "fine-tuning", str(tmp_path), "--targets", "nope")
    assert code == 2
    assert "--targets: nope is not the name of a linear layer" in " ".join(err.split())
