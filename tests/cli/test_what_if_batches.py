"""`what-if batch`, `budget` and `lr` as a person types them."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from tests.services.shell import Shell, run_without

MEASURED = "nodes,gpus,micro_batch,step_time_s\n" + "".join(
    f"{nodes},{gpus},{batch},"
    f"{(0.05 + 0.001 * batch) * (1 + 0.1 * (gpus > 1) + 0.3 * (nodes > 1))}\n"
    for nodes, gpus in ((1, 1), (1, 2), (1, 4), (2, 8))
    for batch in (16, 64, 256)
)
NOISE = "global_batch,progress,grad_sqr,grad_var\n256,100,1,2\n256,200,1,4\n"
EPOCHS = "global_batch,epoch_time_s\n32,50\n64,30\n128,20\n256,15\n"
NO_RUNS = "global_batch,epochs_to_target\n"


def write(folder: Path, **texts: str) -> list[str]:
    """Write tables and return the options that name them."""
    words: list[str] = []
    for name, text in texts.items():
        (folder / f"{name}.csv").write_text(text)
        words += [f"--{name}", str(folder / f"{name}.csv")]
    return words


def batch_words(
    folder: Path, *more: str, measured: str = MEASURED, noise: str = NOISE
) -> list[str]:
    files = write(folder, measured=measured, noise=noise)
    return [
        "what-if",
        "batch",
        *files,
        "--batches",
        "512,128,256",
        "--gpus",
        "4",
        "--max-micro-batch",
        "64",
        *more,
    ]


def budget_words(folder: Path, *more: str, runs: str = NO_RUNS) -> list[str]:
    files = write(folder, epochs=EPOCHS, runs=runs)
    return ["what-if", "budget", *files, "--batches", "32,64,128,256", *more]


def test_batches_are_ranked_with_the_plan_of_each(shell: Shell) -> None:
    ranking = shell.json(*batch_words(shell.folder))["ranking"]
    assert {ranked["global_batch"] for ranked in ranking} == {128, 256, 512}
    assert ranking[0]["time_to_accuracy_relative"] == 1.0
    plans = {ranked["global_batch"]: ranked["plan"] for ranked in ranking}
    assert plans[256] == {"workers": 4, "micro_batch": 64, "accumulation": 1, "global_batch": 256}
    assert plans[512] == {"workers": 4, "micro_batch": 64, "accumulation": 2, "global_batch": 512}


def test_batches_for_people_name_the_plan_in_full(shell: Shell) -> None:
    code, out, _ = shell(*batch_words(shell.folder))
    assert code == 0
    assert "64 x 2 accumulated x 4 workers" in out


def test_guesses_and_doubtful_batches_are_noted_beside_the_answer(shell: Shell) -> None:
    code, out, err = shell(*batch_words(shell.folder, "--nodes", "4", "--json"))
    assert code == 0
    assert "times are extrapolated" in err
    assert "guesses" not in out
    quiet = NOISE.replace(",2\n", ",0.01\n").replace(",4\n", ",0.01\n")
    _, _, err = shell(*batch_words(shell.folder, noise=quiet))
    assert "times the noise scale" in err


def test_notes_name_the_micro_batch_that_was_not_measured_and_noise_that_is_left_out(
    shell: Shell,
) -> None:
    small = "nodes,gpus,micro_batch,step_time_s\n1,1,8,0.1\n1,2,8,0.12\n1,4,8,0.15\n"
    noise = NOISE + "256,300,1,-4\n"
    _, out, err = shell(*batch_words(shell.folder, measured=small, noise=noise))
    note = " ".join(err.split())
    assert "was measured on 4 GPUs of 1 node, only 8" in note
    assert "1 row is skipped because grad_sqr or grad_var is 0 or less" in note
    assert "relative time" in out


def test_the_end_of_the_training_can_be_told(shell: Shell) -> None:
    def steps(*more: str) -> float:
        ranking = shell.json(*batch_words(shell.folder, *more))["ranking"]
        return next(ranked["steps_relative"] for ranked in ranking if ranked["global_batch"] == 512)

    assert steps("--until", "100000") < steps()


def test_the_next_run_is_followed_until_runs_are_used_up(shell: Shell) -> None:
    runs, truth = NO_RUNS, {32: "20", 64: "22", 128: "26", 256: ""}
    made: list[int] = []
    while (advice := shell.json(*budget_words(shell.folder, "--max-runs", "2", runs=runs)))[
        "next_run"
    ] is not None:
        made.append(advice["next_run"])
        runs += f"{made[-1]},{truth[made[-1]]}\n"
    assert len(made) == len(set(made)) == 2
    assert truth[advice["choice"]]
    assert advice["ranking"][0]["global_batch"] == advice["choice"]
    assert set(advice["ranking"][0]) == {"global_batch", "time_to_target_s", "low_s", "high_s"}


def test_the_budget_for_people_says_what_to_run_and_what_to_choose(shell: Shell) -> None:
    code, out, _ = shell(*budget_words(shell.folder))
    assert code == 0
    assert "unknown" in out
    assert "next. It tells you the most." in out
    code, out, _ = shell(
        *budget_words(
            shell.folder,
            runs=NO_RUNS + "64,20\n128,\n",
        )
    )
    assert code == 0
    assert "choose batch 64" in out
    _, out, _ = shell(*budget_words(shell.folder))
    assert "is only a guess" in out
    assert "so far, choose" not in out
    _, out, _ = shell(*budget_words(shell.folder, runs=NO_RUNS + "32,\n"))
    assert "No batch can be chosen yet" in out
    assert "no batch is left" not in out
    everything = NO_RUNS + "32,\n64,\n128,\n256,\n"
    assert "no batch is left" in shell(*budget_words(shell.folder, runs=everything))[1]
    failed = shell.json(*budget_words(shell.folder, runs=everything))
    assert failed == {"next_run": None, "choice": None, "ranking": []}


def test_a_rate_is_carried_to_another_batch(shell: Shell) -> None:
    words = [
        "what-if",
        "lr",
        "--optimizer",
        "SGD",
        "--lr",
        "0.1",
        "--from-batch",
        "256",
        "--to-batch",
        "8192",
    ]
    advice = shell.json(*words)
    assert set(advice) == {"lr", "rule", "warmup", "message", "extrapolated"}
    assert (advice["lr"], advice["rule"]) == (pytest.approx(3.2), "linear")
    code, out, _ = shell(*words)
    assert code == 0
    assert "linear" in out
    assert "warm-up" in out
    assert "extrapolated" not in out


RATE = [
    "what-if",
    "lr",
    "--optimizer",
    "sgd",
    "--lr",
    "0.1",
    "--from-batch",
    "64",
    "--to-batch",
    "128",
]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (partial(batch_words, noise="global_batch,progress,grad_sqr\n"), "no column grad_var"),
        (partial(batch_words, noise=NOISE + "256,late,1,1\n"), "line 4, column progress: 'late'"),
        (partial(batch_words, measured="nodes,gpus,micro_batch\n1,1,8\n"), "no column step_time_s"),
        (lambda folder: [*batch_words(folder), "--measured", "nowhere.csv"], "nowhere.csv"),
        (lambda folder: batch_words(folder, "--batches", "128,big"), "128,big"),
        (lambda folder: batch_words(folder, "--nodes", "9"), "nodes"),
        (partial(budget_words, runs=NO_RUNS + "64,soon\n"), "line 2, column epochs_to_target"),
        (lambda folder: budget_words(folder, "--batches", "16,32"), "no profile of batch 16"),
        (lambda _: [*RATE, "--rule", "adascale"], "--noise-scale"),
        (lambda _: [*RATE, "--optimizer", "sdg"], "sdg"),
        (lambda _: [*RATE, "--lr", "-0.1"], "-0.1"),
        (lambda _: [*RATE, "--lr", "nan"], "a number greater than 0"),
        (lambda _: [*RATE, "--lr", "inf"], "a number greater than 0"),
    ],
)
def test_what_is_malformed_is_refused_with_where_it_is(
    words: Callable[[Path], list[str]], said: str, shell: Shell
) -> None:
    code, out, err = shell(*words(shell.folder), "--json")
    assert code == 2
    assert said in err
    assert said in json.loads(out)["error"]["message"]


def test_answers_load_neither_torch_nor_ray_nor_pandas_and_rates_no_numpy(tmp_path: Path) -> None:
    heavy = "torch ray pandas optuna plotly"
    run_without(f"{heavy} numpy", RATE)
    run_without(heavy, budget_words(tmp_path), batch_words(tmp_path))
