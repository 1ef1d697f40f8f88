"""Runs, events and commands in a real store of one process, in SQLite and in PostgreSQL."""

from __future__ import annotations

import contextlib
import itertools
import json
import math
import os
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import pytest
from hypothesis import HealthCheck, given
from hypothesis import strategies as st

from tests.builders.examples import examples
from tests.services.databases import execute
from workbench.experiment import Experiment
from workbench.foundation.errors import (
    ArgumentError,
    ExperimentError,
    LeaseError,
    RunError,
    RunNotFoundError,
    StoreError,
)
from workbench.foundation.events import (
    Noted,
    RunStateChanged,
    TrialEnded,
    TrialProposed,
    TrialReported,
    TrialStarted,
)
from workbench.foundation.outside_text import storable, storable_name
from workbench.foundation.processes import describe_process
from workbench.store.database import RunWriter, Store
from workbench.store.database import rows as rows_module
from workbench.store.database.labels import change_tags, write_notes
from workbench.store.database.rows import can_name_run, make_run_id, to_run
from workbench.store.database.tables import runs


def make_experiment(name: str = "Digits convnet", **fields: object) -> Experiment:
    objectives = [{"metric": "val_accuracy", "goal": "maximize"}]
    return Experiment(
        **{"name": name, "model": "convnet", "data": "digits", "objectives": objectives} | fields
    )


def write(store: Store, run_id: str, lease_timeout_s: float = 15.0) -> RunWriter:
    return store.writer(
        run_id, owner_pid=os.getpid(), owner_host="here", lease_timeout_s=lease_timeout_s
    )


def test_new_run_waits_and_has_no_owner(store: Store) -> None:
    before = time.time()
    run = store.run(store.create_run(make_experiment()))
    assert (run.name, run.state, run.last_seq, run.owner) == ("Digits convnet", "waiting", 0, None)
    assert run.run_id.startswith("digits-convnet-")
    assert run.experiment_hash == make_experiment().hash()
    assert before <= run.created_unix_s <= time.time()


def test_a_silent_driver_of_another_machine_is_lost_two_minutes_after_its_lease(
    store: Store, experiment: Experiment, monkeypatch: pytest.MonkeyPatch
) -> None:
    run_id = store.create_run(experiment)
    writer = store.writer(run_id, owner_pid=1, owner_host="elsewhere", lease_timeout_s=15.0)
    writer.append(RunStateChanged(state="running"))
    row = store.find(run_id)._mapping
    now_unix_s = row["heartbeat_unix_s"]
    for described, places in (
        (None, ("running", "lost")),
        ("boot pid:[1] 17", ("running", "lost")),
    ):
        there = SimpleNamespace(**{**row, "owner_process": described})
        for since_s, state in zip((16.0, 134.0, 136.0), ("running", *places), strict=True):
            run = to_run(there, now_unix_s + since_s)
            assert (run.state, run.silent_s) == (state, since_s if state == "running" else None)
            assert to_run(there, now_unix_s - since_s).state == state, "a clock was set back"
    assert to_run(there, now_unix_s + 14.0).silent_s is None
    assert to_run(there, now_unix_s + 1000.0, was_renewed=True).state == "running"
    writer.close()
    left = SimpleNamespace(**{**store.find(run_id)._mapping})
    assert to_run(left, left.heartbeat_unix_s + 16.0).state == "lost", "it left its run"


def test_a_new_run_that_no_driver_takes_is_lost_once_its_creator_has_ended(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    run_id = store.create_run(make_experiment())
    monkeypatch.setattr(rows_module, "START_PATIENCE_S", -1.0)
    assert store.run(run_id).state == "waiting", (
        "this process may be starting its driver, which takes long"
    )
    with subprocess.Popen(["sleep", "60"]) as creator:
        described = describe_process(creator.pid)
        creator.kill()
    ended = {"owner_pid": creator.pid, "owner_process": described}
    with store.transaction() as connection:
        connection.execute(runs.update().where(runs.c.run_id == run_id).values(ended))
    assert store.run(run_id).state == "lost"
    assert list(store.follow(run_id)) == []


def test_experiment_comes_back_equal(store: Store) -> None:
    experiment = make_experiment(search={"lr": {"low": 1e-4, "high": 1.0, "log": True}}, seed=7)
    assert store.experiment(store.create_run(experiment)) == experiment


def test_events_come_back_equal_and_numbered_without_gaps(store: Store) -> None:
    run_id = store.create_run(make_experiment())
    written = [Noted(level="info", message=f"{n}\n\u00e4") for n in range(5)]
    with write(store, run_id) as writer:
        assert writer.append(written[0]) == 1
        assert writer.append(*written[1:]) == 5
        assert writer.append() == 5
    stored = store.events(run_id)
    assert [item.seq for item in stored] == [1, 2, 3, 4, 5]
    assert [item.event for item in stored] == written
    assert store.run(run_id).last_seq == 5


def test_non_finite_values_survive(store: Store) -> None:
    run_id = store.create_run(make_experiment())
    values = {"nan": math.nan, "up": math.inf, "down": -math.inf}
    with write(store, run_id) as writer:
        writer.append(TrialReported(trial=0, step=1, values=values))
    event = store.events(run_id)[0].event
    assert isinstance(event, TrialReported)
    assert math.isnan(event.values["nan"])
    assert (event.values["up"], event.values["down"]) == (math.inf, -math.inf)


def test_events_are_filtered_by_cursor_trial_type_and_limit(store: Store) -> None:
    run_id = store.create_run(make_experiment())
    with write(store, run_id) as writer:
        writer.append(*(TrialReported(trial=n % 3, step=n) for n in range(9)))
        writer.append(
            TrialEnded(trial=1, attempt=0, state="complete"), Noted(level="info", message="done")
        )

    def seqs(**filters: object) -> list[int]:
        return [item.seq for item in store.events(run_id, **filters)]  # type: ignore[arg-type]

    assert seqs(after=9) == [10, 11]
    assert seqs(limit=2) == [1, 2]
    assert seqs(trial=1) == [2, 5, 8, 10]
    assert seqs(trial={0, 2}, after=1) == [3, 4, 6, 7, 9]
    assert seqs(trial=()) == []
    assert seqs(types={"trial_ended", "noted"}) == [10, 11]
    assert seqs(trial=1, types={"trial_reported"}, after=2, limit=1) == [5]
    assert seqs(types=()) == []


def test_rows_in_chunks_are_all_rows_in_order(store: Store) -> None:
    run_id = store.create_run(make_experiment())
    with write(store, run_id) as writer:
        writer.append(*(Noted(level="info", message=str(n)) for n in range(10)))
    for limit, chunk_events in itertools.product((None, 0, 1, 4, 10, 99), (1, 3, 5, 10, 50)):
        chunks = list(store.event_rows(run_id, limit=limit, chunk_events=chunk_events))
        rows = [row[0] for chunk in chunks for row in chunk]
        assert rows == list(range(1, 11))[:limit], (limit, chunk_events)
        assert all(0 < len(chunk) <= chunk_events for chunk in chunks), (limit, chunk_events)


def test_state_changes_with_its_event(store: Store) -> None:
    run_id = store.create_run(make_experiment())
    with write(store, run_id) as writer:
        writer.append(RunStateChanged(state="running"), Noted(level="info", message="x"))
        assert store.run(run_id).state == "running"
        writer.append(
            RunStateChanged(state="stopping"), RunStateChanged(state="complete", time_unix_s=12.5)
        )
    run = store.run(run_id)
    assert (run.state, run.changed_unix_s) == ("complete", 12.5)


def test_a_failed_start_is_not_the_last_run(store: Store, experiment: Experiment) -> None:
    failed = store.create_run(experiment)
    with store.writer(failed, owner_pid=1, owner_host="here") as writer:
        writer.append(RunStateChanged(state="running"), RunStateChanged(state="failed"))
    assert store.run("last").run_id == failed, "there is no other"
    tried = store.create_run(experiment)
    with store.writer(tried, owner_pid=1, owner_host="here") as writer:
        writer.append(
            TrialStarted(trial=0, attempt=0, worker_pids=[1]), RunStateChanged(state="failed")
        )
    assert store.run("last").run_id == tried, "what it tried failed, which can be looked at"
    for states in (("failed",), ("running", "failed")):
        run_id = store.create_run(experiment)
        with store.writer(run_id, owner_pid=1, owner_host="here") as writer:
            writer.append(*(RunStateChanged(state=state) for state in states))
        assert store.run("last").run_id == tried
    assert store.run(store.create_run(experiment)).run_id == store.run("last").run_id


def test_runs_are_newest_first_and_ids_sort_by_time(store: Store) -> None:
    run_ids = [store.create_run(make_experiment()) for _ in range(40)]
    assert run_ids == sorted(set(run_ids))
    assert [run.run_id for run in store.runs()] == run_ids[::-1]
    assert [run.run_id for run in store.runs(limit=3)] == run_ids[:-4:-1]
    assert store.run("last").run_id == store.run("latest").run_id == run_ids[-1]


def test_run_is_found_by_a_beginning_that_only_it_has(store: Store) -> None:
    for run_id in ("lstm-1", "lstm-12", "lstm%", "mlp-1"):
        if "%" not in run_id:
            store.create_run(make_experiment(), run_id=run_id)
    assert store.run("m").run_id == "mlp-1"
    assert store.run("lstm-1").run_id == "lstm-1"
    with pytest.raises(RunNotFoundError, match="is the start of several runs: lstm-1, lstm-12"):
        store.run("lstm")
    with pytest.raises(RunNotFoundError):
        store.run("%")


def test_run_is_found_by_a_name_that_only_it_has(store: Store) -> None:
    names = {
        "cnn-1": "cnn",
        "cnn-small-1": "cnn-small",
        "cnn-small-2": "Small one",
        "x-1": "lstm",
        "x-2": "lstm",
    }
    for run_id, name in names.items():
        store.create_run(make_experiment(name=name), run_id=run_id)
    assert store.run("cnn").run_id == "cnn-1"
    assert store.run("Small one").run_id == "cnn-small-2"
    with pytest.raises(
        RunNotFoundError, match=r"'lstm' is the name of several runs: x-2, x-1.*last for the newest"
    ):
        store.run("lstm")
    store.create_run(make_experiment(name="cnn-1"), run_id="other")
    assert store.run("cnn-1").run_id == "cnn-1"


def test_unknown_run_lists_near_names(store: Store) -> None:
    with pytest.raises(RunNotFoundError, match="no runs yet"):
        store.run("last")
    store.create_run(make_experiment(), run_id="digits-1")
    with pytest.raises(RunNotFoundError, match="Did you mean digits-1"):
        store.events("digist-1")
    with pytest.raises(RunNotFoundError):
        store.run("")


def test_run_id_that_is_no_folder_name_is_refused(store: Store) -> None:
    for run_id in ("../up", "a/b", "", "last", ".hidden", "x" * 121, "a b"):
        with pytest.raises(StoreError, match="run_id"):
            store.create_run(make_experiment(), run_id=run_id)


def test_run_id_is_given_once(store: Store) -> None:
    store.create_run(make_experiment(), run_id="mine")
    with pytest.raises(StoreError, match="already exists"):
        store.create_run(make_experiment(), run_id="mine")


def test_any_name_makes_a_run_id_that_is_a_folder_name(store: Store) -> None:
    for name in ("\u00dcbung : 1", "---", "x" * 80, "A  B"):
        run_id = store.create_run(make_experiment(name))
        assert str(store.folder(run_id)) == f"{store.artifacts}/{run_id}"
    assert store.folder(run_id).is_dir()
    assert store.run(run_id).name == name


def test_commands_are_numbered_in_each_run(store: Store) -> None:
    first, second = (store.create_run(make_experiment()) for _ in range(2))
    assert store.command(first, "stop", {}) == 1
    assert store.command(first, "enqueue", {"params": {"lr": 0.1, "name": None}}) == 2
    assert store.command(second, "stop", {"trial": 3}) == 1
    assert [(item.number, item.kind) for item in store.commands(first)] == [
        (1, "stop"),
        (2, "enqueue"),
    ]
    assert store.commands(first, after=1)[0].arguments == {"params": {"lr": 0.1, "name": None}}
    assert store.commands(second)[0].arguments == {"trial": 3}


def test_lease_is_held_by_one_writer(store: Store) -> None:
    run_id = store.create_run(make_experiment())
    with (
        write(store, run_id),
        pytest.raises(
            LeaseError,
            match=rf"driven by process {os.getpid()} on here, whose last heartbeat was \S+ \w+ ago",
        ),
    ):
        write(store, run_id)
    with write(store, run_id) as writer:
        assert writer.append(Noted(level="info", message="again")) == 1


def test_closed_writer_refuses_events(store: Store) -> None:
    run_id = store.create_run(make_experiment())
    writer = write(store, run_id)
    writer.close()
    writer.close()
    with pytest.raises(LeaseError, match="closed"):
        writer.append(Noted(level="info", message="late"))


def test_embedded_object_travels_with_the_run(store: Store) -> None:
    def build(configuration: dict[str, int]) -> int:
        return configuration["width"] * 2

    run_id = store.create_run(make_experiment(model=build))
    model = store.experiment(run_id).model
    assert model is not None
    assert model.load()({"width": 21}) == 42


def test_tampered_object_is_refused(store: Store) -> None:
    run_id = store.create_run(make_experiment(model=lambda configuration: None))
    (path,) = (store.folder(run_id) / "objects").iterdir()
    path.write_bytes(path.read_bytes() + b"!")
    with pytest.raises(RunError, match="the stored bytes of"):
        store.experiment(run_id)


def test_experiment_of_a_newer_version_is_refused_in_words(store: Store, url: str) -> None:
    run_id = store.create_run(make_experiment())
    newer = {**make_experiment().model_dump(mode="json", exclude_unset=True), "novelty": 1}
    execute(url, "UPDATE runs SET experiment = :text", text=json.dumps(newer))
    with pytest.raises(StoreError, match="cannot be read by this version: novelty"):
        store.experiment(run_id)


def test_store_is_where_the_environment_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WORKBENCH_STORE", str(tmp_path / "named" / "by.sqlite"))
    with Store.open() as store:
        assert store.url == f"sqlite:///{tmp_path}/named/by.sqlite"
        assert str(store.artifacts) == str(tmp_path / "named" / "artifacts")
        run_id = store.create_run(make_experiment())
    monkeypatch.setenv("WORKBENCH_ARTIFACTS", str(tmp_path / "elsewhere"))
    with Store.open(store.url) as again:
        assert again.folder(run_id) == tmp_path / "elsewhere" / run_id


def test_store_without_a_name_lies_in_the_data_folder_of_the_user(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("WORKBENCH_STORE", raising=False)
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    monkeypatch.setenv("HOME", str(tmp_path))
    with Store.open() as store:
        folder = store.artifacts.working_folder
        assert folder.parts[-2:] == ("workbench", "artifacts")
        assert folder.is_relative_to(tmp_path)


def test_path_of_a_store_does_not_depend_on_the_working_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for path in ("here.sqlite", "sqlite:///here.sqlite"):
        with Store.open(path) as store:
            assert store.url == f"sqlite:///{tmp_path}/here.sqlite"


@examples(40, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    batches=st.lists(st.integers(0, 6), min_size=1, max_size=8),
    looks=st.lists(st.tuples(st.integers(0, 8), st.integers(1, 5)), max_size=12),
)
def test_reading_by_cursor_between_any_writes_has_no_gap_and_no_repeat(
    store: Store, batches: list[int], looks: list[tuple[int, int]]
) -> None:
    run_id = store.create_run(make_experiment())
    seen: list[int] = []

    def look(limit: int | None) -> None:
        seen.extend(item.seq for item in store.events(run_id, after=len(seen), limit=limit))

    with write(store, run_id) as writer:
        for number, size in enumerate(batches):
            writer.append(*(Noted(level="info", message="x") for _ in range(size)))
            for when, limit in looks:
                if when == number:
                    look(limit)
    look(None)
    assert seen == list(range(1, sum(batches) + 1))


@given(st.integers(0, 36**7 - 2), st.integers(1, 36**6))
def test_run_ids_of_one_name_sort_as_their_times(ticks: int, later: int) -> None:
    after = min(ticks + later, 36**7 - 1)
    assert make_run_id("a", ticks) < make_run_id("a", after)


@given(st.text(max_size=80))
def test_run_id_made_of_any_name_is_allowed(name: str) -> None:
    assert can_name_run(make_run_id(name, 0))


def test_opening_a_store_again_keeps_the_locks_that_keep_others_from_clearing_its_log_away(
    tmp_path: Path,
) -> None:
    path = tmp_path / "shared.sqlite"
    program = (
        "import sqlite3 as s, sys; c = s.connect(sys.argv[1]); c.execute('select * from runs');"
        " c.close()"
    )
    with Store.open(str(path)) as first:
        first.runs()
        with Store.open(str(path)) as again:
            again.runs()
            subprocess.run([sys.executable, "-c", program, str(path)], check=True)
            assert Path(f"{path}-wal").exists()


@pytest.mark.parametrize(
    "text",
    [
        "caf\udce9.csv",
        "half \ud83d",
        "nul \0 inside",
        "\x1b[2J\u202e",
        "x" * 2**20,
        "\U0001f600",
        "\ufffd",
        "'\"\\",
    ],
)
def test_any_text_is_kept_in_every_kind_of_database(
    store: Store, experiment: Experiment, text: str
) -> None:
    run_id = store.create_run(experiment)
    with store.writer(run_id, owner_pid=1, owner_host="here") as writer:
        writer.append(
            Noted(level="warning", message=text),
            TrialReported(trial=0, step=1, values={storable_name(text): 0.5, f"{text[:9]}-b": 1.0}),
            TrialEnded(trial=0, attempt=0, state="failed", message=text, traceback=text),
        )
    noted, reported, ended = (stored.event for stored in store.events(run_id))
    assert isinstance(noted, Noted)
    assert isinstance(reported, TrialReported)
    assert isinstance(ended, TrialEnded)
    assert noted.message == ended.traceback == storable(text)
    assert reported.values[storable_name(text)] == 0.5
    store.command(run_id, "note", {"text": text[:1000]})
    assert [command.arguments for command in store.commands(run_id)] == [{"text": text[:1000]}]
    with contextlib.suppress(ArgumentError):
        change_tags(store, run_id, add=[text[:30]])
    with contextlib.suppress(ArgumentError):
        write_notes(store, run_id, text[:99])


@pytest.mark.parametrize("name", ["ru\udcff", "run\0", "\ud83d", "x" * 2**20])
def test_a_name_that_no_database_could_hold_names_no_run(
    store: Store, experiment: Experiment, name: str
) -> None:
    store.create_run(experiment)
    with pytest.raises(RunNotFoundError) as caught:
        store.run(name)
    str(caught.value).encode()


@examples(15, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    text=st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=40),
    outside=st.text(st.characters(), max_size=40),
)
def test_drawn_text_is_kept_in_values_and_names_and_refused_as_tags_in_words(
    store: Store, text: str, outside: str
) -> None:
    objectives = [{"metric": text, "goal": "minimize"}]
    search = {"x": {"choices": [text, "other"]}, text[:30]: {"low": 0.0, "high": 1.0}}
    try:
        experiment = Experiment(train="mine:train", objectives=objectives, search=search)
    except ExperimentError as error:
        str(error).encode(errors="strict")
        return
    run_id = store.create_run(experiment)
    assert store.experiment(run_id) == experiment
    with write(store, run_id) as writer:
        params = {"x": text, "y": outside}
        writer.append(
            TrialProposed(trial=0, params=params, configuration=0, seed=0, source="sampler"),
            TrialReported(trial=0, step=1, values={text: 0.5}),
        )
    proposed, reported = (stored.event for stored in store.events(run_id))
    assert isinstance(proposed, TrialProposed)
    assert isinstance(reported, TrialReported)
    assert proposed.params["x"] == text
    assert reported.values == {text: 0.5}
    with contextlib.suppress(ArgumentError):
        assert change_tags(store, run_id, add=[outside]) == [outside.strip()]
    with contextlib.suppress(ArgumentError):
        write_notes(store, run_id, outside)
    store.run(run_id).notes.encode()
