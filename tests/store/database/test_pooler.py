"""A store behind a pooler that gives every transaction to whichever session is free."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.services.pgbouncer import PROGRAM, Pooler
from tests.services.postgresql import Server
from workbench.experiment import Experiment
from workbench.foundation.events import Noted
from workbench.store.database import Store


@pytest.fixture
def pooled(postgresql: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """The URL of an empty database behind a pooler."""
    if shutil.which(PROGRAM) is None:
        pytest.skip("needs PgBouncer (apt-get install pgbouncer)")
    monkeypatch.setenv("WORKBENCH_ARTIFACTS", str(tmp_path / "artifacts"))
    pooler, database = Pooler(postgresql), postgresql.make_database()
    yield pooler.url(database)
    pooler.close()
    postgresql.drop_database(database)


def test_several_write_and_read_the_same_statements_again_and_again(
    pooled: str, experiment: Experiment
) -> None:
    # The driver of the database would have prepared a statement by its fifth use, in one session of
    # many.
    with Store.open(pooled) as one, Store.open(pooled) as other:
        run_ids = [store.create_run(experiment) for store in (one, other)]
        with (
            one.writer(run_ids[0], owner_pid=1, owner_host="a") as first,
            other.writer(run_ids[1], owner_pid=2, owner_host="b") as second,
        ):
            for number in range(20):
                for writer in (first, second):
                    writer.append(Noted(level="info", message=str(number)))
                assert [store.run(run_ids[1]).last_seq for store in (one, other)] == [
                    number + 1
                ] * 2
        for run_id in run_ids:
            told = [stored.event for stored in one.events(run_id)]
            assert [event.message for event in told if isinstance(event, Noted)] == [
                str(number) for number in range(20)
            ]


def test_who_follows_looks_by_itself_where_the_pooler_keeps_news_to_itself(
    pooled: str, experiment: Experiment
) -> None:
    with Store.open(pooled) as store, store.listen() as listener:
        run_id = store.create_run(experiment)
        with store.writer(run_id, owner_pid=1, owner_host="a") as writer:
            for number in range(1, 4):
                writer.append(Noted(level="info", message=str(number)))
                listener.wait(0.05)
                assert store.run(run_id).last_seq == number
        assert not store._notifications.is_listening
