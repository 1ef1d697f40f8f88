"""The command line at a store on PostgreSQL: the same words, and no password anywhere."""

from __future__ import annotations

import optuna
import pytest

from tests.builders.recorded_runs import EXPERIMENT, append, begin, finish, record_run, trial_events
from tests.services.postgresql import ESCAPED_PASSWORD, PASSWORD, Server
from tests.services.shell import Shell
from workbench.experiment import Experiment
from workbench.store.database import Store
from workbench.store.database.urls import name_driver


@pytest.fixture
def url(postgresql_url: str, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.delenv("WORKBENCH_STORE", raising=False)
    return postgresql_url


def assert_hidden(text: str) -> None:
    assert PASSWORD not in text
    assert ESCAPED_PASSWORD not in text


def test_commands_that_read_take_the_url_and_show_no_password(shell: Shell, url: str) -> None:
    run_id = record_run(url)
    told = {
        words: shell(*words, "--store", url)
        for words in [
            ("list",),
            ("show", "last"),
            ("follow", run_id),
            ("report", run_id),
            ("doctor",),
        ]
    }
    for words, (code, out, err) in told.items():
        assert_hidden(out + err)
        assert (words, code) == (words, {"follow": 5}.get(words[0], code))
    assert run_id in told["list",][1]
    assert "val_accuracy" in told["show", "last"][1]
    assert "run complete" in told["follow", run_id][1]
    assert f"{url.replace(ESCAPED_PASSWORD, '***')}, 1 run\n" in told["doctor",][1]
    code, out, err = shell("show", "nothing", "--store", url)
    assert code == 2
    assert "Did you mean" in err or "The newest" in err
    assert_hidden(out + err)


def test_a_study_is_exported_into_the_database_of_the_store_itself(
    shell: Shell, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WORKBENCH_STORE", url)
    run_id = record_run(url)
    code, out, err = shell("export", "last", "--optuna", url)
    assert code == 0, err
    assert_hidden(out + err)
    study = optuna.load_study(study_name=run_id, storage=name_driver(url))
    assert study.best_value == 0.95
    code, out, err = shell("export", "last", "--optuna", url)
    assert code != 0
    assert "already has a study" in err
    assert_hidden(out + err)
    with Store.open(url) as store:
        assert store.run("last").run_id == run_id


def test_a_server_that_is_down_is_one_line_that_says_where(
    shell: Shell, url: str, postgresql: Server
) -> None:
    with postgresql.away():
        code, _, err = shell("list", "--store", url)
    assert code == 1
    assert "the server cannot be reached" in err
    assert f"127.0.0.1:{postgresql.port}" in err
    assert_hidden(err)


def test_a_follower_goes_on_when_the_server_is_back(
    shell: Shell, url: str, postgresql: Server
) -> None:
    with Store.open(url) as store:
        run_id = store.create_run(Experiment(**EXPERIMENT))
        process = shell.process("follow", run_id, "--store", url)
        assert process.stdout is not None
        assert process.stderr is not None
        append(store, run_id, begin())
        assert "driver started" in process.stdout.readline()
        with postgresql.away():
            told = process.stderr.readline()
        append(store, run_id, [*trial_events(0, at_s=1), *finish(9)])
    out, err = process.communicate(timeout=120)
    assert "Trying again" in told
    assert "trial 0 complete" in out
    assert "Traceback" not in err
    assert process.returncode == 0
    assert_hidden(told + out + err)
