"""A column is declared once: a trial has the same values in Python, panel, terminal and report."""

from __future__ import annotations

import html
import io
import math
import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from tests.builders.examples import examples
from tests.builders.report_pages import report_html
from workbench.cli.show import print_best, trials_table
from workbench.experiment import Experiment
from workbench.foundation.events import (
    AttemptEnded,
    DriverStarted,
    Event,
    TokenCounts,
    TrialEnded,
    TrialPlanned,
    TrialProposed,
    TrialReported,
    TrialStarted,
)
from workbench.foundation.formatting import MISSING
from workbench.runs.descriptions import leaders
from workbench.runs.plots.report_tables import best_trials
from workbench.runs.plots.run_data import RunData
from workbench.runs.stored_run import to_table
from workbench.runs.waiting import progress_line
from workbench.store.history import History
from workbench.store.history.trial_columns import CODE, FEASIBLE, MEMBER, columns_of
from workbench.views.live_feed.protocol import TableQuery
from workbench.views.live_feed.trial_table import table_of

EXPERIMENT = Experiment(
    train="package:train",
    objectives=[{"metric": "f1", "goal": "maximize"}],
    constraints=[{"metric": "size", "at_most": 3.0}],
    search={"lr": {"low": 1e-5, "high": 1.0, "log": True}, "step": {"choices": ["a", "b"]}},
)
NUMBERS = st.one_of(
    st.floats(-1e6, 1e6),
    st.sampled_from([math.nan, math.inf, -math.inf, 0.1 + 0.2, 1e-9, 123456.5]),
)
VALUES = st.dictionaries(st.sampled_from(["f1", "f1_loss", "size", "duration_s", "lr"]), NUMBERS)
SECONDS = st.floats(0.0, 4000.0)


@st.composite
def histories(draw: Any) -> tuple[list[Event], dict[int, float | None]]:
    """Draw the events of a run, and for how long each of its trials ran."""
    now_s = 1000.0
    events: list[Event] = [DriverStarted(pid=1, host="here", num_cpus=2, time_unix_s=now_s)]
    ran_s: dict[int, float | None] = {}
    for number in range(draw(st.integers(1, 4))):
        params = {"lr": draw(st.floats(1e-5, 1.0)), "step": draw(st.sampled_from(["a", "b"]))}
        events.append(
            TrialProposed(
                trial=number, params=params, configuration=number, seed=0, time_unix_s=now_s
            )
        )
        ran_s[number] = None
        num_attempts = draw(st.integers(0, 3))
        for attempt in range(num_attempts):
            now_s += draw(SECONDS)  # it waits
            began_s = last_s = now_s
            events.append(
                TrialStarted(trial=number, attempt=attempt, worker_pids=[1], time_unix_s=now_s)
            )
            for step in range(draw(st.integers(0, 3))):
                now_s += draw(SECONDS)
                last_s = now_s
                speed = draw(st.one_of(st.none(), st.floats(0.001, 1e6)))
                events.append(
                    TrialReported(
                        trial=number,
                        attempt=attempt,
                        step=step,
                        values=draw(VALUES),
                        samples_per_s=speed,
                        time_unix_s=now_s,
                    )
                )
            how = draw(
                st.sampled_from(
                    ["lost", "stopped", "oom"]
                    if attempt < num_attempts - 1
                    else ["complete", "failed", "pruned", "running", "lost"]
                )
            )
            now_s += draw(SECONDS)
            until_s = last_s if how in ("lost", "stopped", "running") else now_s
            ran_s[number] = (ran_s[number] or 0.0) + until_s - began_s
            if how in ("complete", "failed", "pruned"):
                values = draw(VALUES) | ({} if how == "failed" else {"f1": draw(NUMBERS)})
                events.append(
                    TrialEnded(
                        trial=number,
                        attempt=attempt,
                        state=how,
                        values=values,
                        step=7,
                        time_unix_s=now_s,
                    )
                )
            elif how != "running":
                message = f"it was {how}"
                events.append(
                    AttemptEnded(
                        trial=number,
                        attempt=attempt,
                        reason=how,
                        message=message,
                        time_unix_s=now_s,
                    )
                )
    return events, ran_s


@examples(25)
@given(histories())
def test_every_face_shows_the_same_values_under_the_same_names(
    drawn: tuple[list[Event], dict[int, float | None]],
) -> None:
    events, ran_s = drawn
    run = RunData.of(EXPERIMENT, events)
    history = run.history
    history.energy_of_trials = {0: 1.25}
    declared = columns_of(history)
    names, headings = {column.name for column in declared}, {column.heading for column in declared}
    assert len(names) == len(headings) == len(declared), "no two columns have one name"

    python = to_table(history)
    assert set(python.columns) <= names
    panel = table_of(history, TableQuery(limit=100))
    panel_cells = {
        row.number: dict(zip((column.label for column in panel.columns), row.cells, strict=True))
        for row in panel.rows
    }
    terminal = terminal_cells(history)
    report = report_cells(run)

    for number, trial in history.trials.items():
        row = python[python["number"] == number].iloc[0]
        assert same(row["duration_s"], ran_s[number])
        assert same(row["energy_wh"], 1.25 if number == 0 else None)
        for column in declared:
            value = column.value(history, trial)
            if column.name in python.columns:
                assert same(row[column.name], value), column.name
            if column.is_shown and column.heading != "continues":
                assert same(panel_cells[number][column.heading], value), column.name
            for face in (terminal, report):
                if column.heading in face.get(number, {}):
                    assert face[number][column.heading] == column.text(history, trial), column.name
    short = {"trial", "state", "f1", "step", "duration (s)", "energy (Wh)", "params"}
    assert terminal[0].keys() == short
    if report:
        first = next(iter(report.values()))
        assert {"trial", "f1", "size", "step", "duration (s)"} <= first.keys()


def same(found: Any, value: Any) -> bool:
    """Return whether a cell holds a value; what is missing is None, or NaN in pandas."""
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return found is None or found != found
    return bool(found == value) or (
        isinstance(value, float) and math.isclose(found, value, abs_tol=1e-9)
    )


def terminal_cells(history: History) -> dict[int, dict[str, str]]:
    """Return the cells of the terminal's table of trials by number and heading."""
    trials = list(history.trials.values())
    table = trials_table(history, trials)
    return {
        trial.number: {str(column.header): str(list(column.cells)[at]) for column in table.columns}
        for at, trial in enumerate(trials)
    }


def report_cells(run: RunData) -> dict[int, dict[str, str]]:
    """Return the cells of the report's table of the best trials by number and heading."""
    page = "".join(best_trials(run))
    heads = [html.unescape(head) for head in re.findall(r'<th scope="col"[^>]*>(.*?)</th>', page)]
    rows = re.findall(r'<tr[^>]*>(<th scope="row".*?)</tr>', page)
    cells = [
        [html.unescape(cell) for cell in re.findall(r"<t[hd][^>]*>(.*?)</t[hd]>", row)]
        for row in rows
    ]
    return {int(row[0]): dict(zip(heads, row, strict=True)) for row in cells}


def test_the_time_of_a_trial_is_the_time_that_it_ran_in_every_face() -> None:
    """Started at 0 s, lost after 40 s of training, resumed an hour later, complete after another 60
    s.
    """
    at = 1_700_000_000.0
    events: list[Event] = [
        DriverStarted(pid=1, host="here", num_cpus=2, time_unix_s=at),
        TrialProposed(
            trial=0, params={"lr": 0.1, "step": "a"}, configuration=0, seed=0, time_unix_s=at
        ),
        TrialStarted(trial=0, attempt=0, worker_pids=[1], time_unix_s=at),
        TrialReported(trial=0, step=1, values={"f1": 0.5, "size": 1.0}, time_unix_s=at + 40),
        AttemptEnded(trial=0, attempt=0, reason="lost", message="lost", time_unix_s=at + 3730),
        TrialStarted(trial=0, attempt=1, worker_pids=[1], time_unix_s=at + 3740),
        TrialEnded(
            trial=0,
            attempt=1,
            state="complete",
            values={"f1": 0.5, "size": 1.0},
            step=2,
            time_unix_s=at + 3800,
        ),
    ]
    run = RunData.of(EXPERIMENT, events)
    assert to_table(run.history)["duration_s"].tolist() == [100.0]
    panel = table_of(run.history, TableQuery())
    place = [column.key for column in panel.columns].index("duration_s")
    assert (panel.rows[0].cells[place], panel.columns[place].unit) == (100.0, "s")
    assert terminal_cells(run.history)[0]["duration (s)"] == "100"
    assert report_cells(run)[0]["duration (s)"] == "100"


def make_console_text(write: Any) -> str:
    """Return what is written to a terminal."""
    console = Console(file=io.StringIO(), width=200)
    write(console)
    return console.file.getvalue()  # pyright: ignore[reportAttributeAccessIssue]


def test_the_guide_explains_every_column() -> None:
    guide = (Path(__file__).parents[3] / "docs/reference/trials.md").read_text(encoding="utf-8")
    for column in (*columns_of(History(EXPERIMENT)), CODE, FEASIBLE, MEMBER):
        if column.kind not in ("param", "value"):
            assert f"`{column.name}`" in guide


def test_with_repeats_every_face_shows_the_mean_of_the_best_configuration() -> None:
    """Repeats of 0.5 and 0.99, and of 0.8 and 0.9.

    The second configuration is the better one, at 0.85.
    """
    experiment = EXPERIMENT.replace(constraints=[], repeats=2)
    events: list[Event] = [DriverStarted(pid=1, host="here", num_cpus=2, time_unix_s=0.0)]
    for number, value in enumerate((0.5, 0.99, 0.8, 0.9)):
        configuration, repeat = divmod(number, 2)
        events += [
            TrialProposed(
                trial=number,
                params={"lr": 0.1 + configuration, "step": "a"},
                configuration=configuration,
                repeat=repeat,
                seed=0,
                time_unix_s=0.0,
            ),
            TrialStarted(trial=number, attempt=0, worker_pids=[1], time_unix_s=1.0),
            TrialEnded(
                trial=number,
                attempt=0,
                state="complete",
                values={"f1": value},
                step=1,
                time_unix_s=2.0,
            ),
        ]
    run = RunData.of(experiment, events)
    history = run.history
    panel = table_of(history, TableQuery())
    assert panel.best is not None
    place = [column.key for column in panel.columns].index("value:f1")
    shown = make_console_text(lambda console: print_best(console, history))
    page = report_html(experiment, events, importance={})
    assert panel.best.cells[place] == pytest.approx(0.85)
    assert history.best_values() == {"f1": pytest.approx(0.85)}
    assert [values for _, _, values in leaders(history)] == [{"f1": pytest.approx(0.85)}]
    assert "best f1 0.85 (mean of 2)" in progress_line(history)
    assert re.search(r"f1\s+0\.85\s+mean of 2 trials", shown)
    assert '<div class="value">0.85</div>' in page
    assert history.to_json()["best"]["mean_values"]["f1"] == pytest.approx(0.85)


def test_metrics_and_parameters_with_spaces_in_their_names_keep_them() -> None:
    events: list[Event] = [
        TrialProposed(trial=0, params={"my lr": 0.1}, configuration=0, seed=0, time_unix_s=0.0),
        TrialStarted(trial=0, attempt=0, worker_pids=[1], time_unix_s=1.0),
        TrialReported(
            trial=0, step=1, values={"f1": 0.5, "f1 macro": 0.4, "f1 micro": 0.3}, time_unix_s=2.0
        ),
    ]
    row = to_table(History.of(EXPERIMENT, events)).iloc[0]
    assert (row["f1"], row["f1 macro"], row["f1 micro"], row["my lr"]) == (0.5, 0.4, 0.3, 0.1)


@pytest.mark.parametrize("is_counted", [False, True])
def test_epochs_that_only_a_program_counts_are_the_column_of_epochs(is_counted: bool) -> None:
    epoch = 2.0 if is_counted else None  # ours, next to what it printed
    events: list[Event] = [
        TrialProposed(trial=0, params={}, configuration=0, seed=0),
        TrialStarted(trial=0, attempt=0, worker_pids=[1]),
        TrialReported(trial=0, step=9, epoch=epoch, values={"epoch": 3.0, "f1": 0.5}),
    ]
    history = History.of(EXPERIMENT, events)
    values = {
        column.name: column.value(history, history.trials[0]) for column in columns_of(history)
    }
    shown = {name: value for name, value in values.items() if "epoch" in name}
    assert shown == ({"epoch": 2.0, "values.epoch": 3.0} if is_counted else {"epoch": 3.0})


def test_an_attempt_whose_end_nobody_recorded_counts_up_to_its_last_event() -> None:
    events: list[Event] = [
        TrialProposed(trial=0, params={}, configuration=0, seed=0, time_unix_s=0.0),
        TrialStarted(trial=0, attempt=0, worker_pids=[1], time_unix_s=10.0),
        TrialReported(trial=0, step=1, values={"f1": 0.5}, time_unix_s=15.0),
        TrialStarted(trial=0, attempt=1, worker_pids=[1], time_unix_s=1000.0),
        TrialReported(trial=0, step=2, values={"f1": 0.5}, time_unix_s=1002.0),
    ]
    assert History.of(EXPERIMENT, events).trials[0].duration_s == 7.0


@pytest.mark.parametrize("column", columns_of(History(EXPERIMENT)), ids=lambda column: column.name)
def test_a_column_states_what_its_values_are_and_a_quantity_its_unit(column: Any) -> None:
    assert column.meaning.endswith(".")
    assert column.write(None) == MISSING
    if column.unit:
        suffix = {"s": "_s", "Wh": "_wh", "samples/s": "_per_s", "GB": "_gb"}[column.unit]
        assert column.name.endswith(suffix)
        assert column.unit in column.heading


def _of_tokens(planned: dict[str, Any] | None = None, **counts: Any) -> History:
    tokens = TokenCounts(per_sample=500.0, num_samples=1000, **counts)
    events: list[Event] = [
        TrialProposed(trial=0, params={}, configuration=0, seed=0, time_unix_s=0.0),
        TrialStarted(trial=0, attempt=0, worker_pids=[1], time_unix_s=10.0),
        TrialPlanned(
            trial=0, plan={"workers": 2}, tokens=tokens, time_unix_s=11.0, **(planned or {})
        ),
        TrialReported(
            trial=0, step=1, epoch=1.5, samples_per_s=40.0, memory_share=0.6, time_unix_s=15.0
        ),
        TrialReported(trial=0, step=2, epoch=2.0, memory_share=0.5, time_unix_s=16.0),
    ]
    return History.of(EXPERIMENT, events)


def test_models_of_tokens_have_columns_for_tokens_and_the_use_of_their_gpus() -> None:
    # 40 x 500 tokens a second, each 6 billion operations, of 2 GPUs with 300 tera a second.
    history = _of_tokens(flops_per_token=6e9, peak_flops_per_s=6e14)
    row = to_table(history).iloc[0]
    assert (row["tokens"], row["tokens_per_s"], row["memory_share"]) == (1_000_000, 20_000, 0.6)
    assert row["mfu"] == pytest.approx(20_000 * 6e9 / 6e14)
    table = Console(file=io.StringIO(), width=200, force_terminal=False)
    table.print(trials_table(history, list(history.trials.values())))
    shown = table.file.getvalue()  # type: ignore[attr-defined]
    for words in ("tokens/s", "20,000", "1,000,000", "MFU", "0.2", "GPU memory"):
        assert words in shown


def test_there_is_no_utilisation_on_cpus_and_no_tokens_without_texts() -> None:
    on_cpu = {column.name for column in columns_of(_of_tokens())}
    assert {"tokens", "tokens_per_s"} < on_cpu
    assert "mfu" not in on_cpu
    assert not {"tokens", "tokens_per_s", "mfu", "memory_share"} & {
        column.name for column in columns_of(History(EXPERIMENT))
    }


def test_the_measured_memory_is_beside_the_predicted_one() -> None:
    predicted = {"gb": 30.0, "low_gb": 25.0, "high_gb": 36.0}
    on_gpu = _of_tokens({"memory_limit_bytes": 50e9, "predicted_memory": predicted})
    row = to_table(on_gpu).iloc[0]
    assert (row["memory_gb"], row["predicted_memory_gb"]) == (pytest.approx(30.0), 30.0)
    table = Console(file=io.StringIO(), width=240, force_terminal=False)
    table.print(trials_table(on_gpu, list(on_gpu.trials.values())))
    shown = table.file.getvalue()  # type: ignore[attr-defined]
    assert "memory (GB)" in shown
    assert "predicted (GB)" in shown
    on_cpu = on_gpu.trials[0]
    on_cpu.memory_limit_bytes = None
    assert on_cpu.memory_gb is None
    assert on_cpu.to_json()["predicted_memory"] == predicted
    assert "predicted_memory_gb" not in to_table(_of_tokens()).columns
