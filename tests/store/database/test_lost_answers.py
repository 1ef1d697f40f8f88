"""A commit whose answer is lost: what was stored then is not stored again."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from tests.services.cut_link import CutLink
from tests.services.databases import execute
from tests.services.postgresql import Server
from workbench.experiment import Experiment
from workbench.foundation.errors import LeaseError, StoreUnavailableError
from workbench.foundation.events import Noted
from workbench.store.database import RunWriter, Store
from workbench.sweeps import ledger

pytest.importorskip("psycopg", reason="needs psycopg (pip install 'tuning-workbench[postgresql]')")


@pytest.fixture
def link(postgresql: Server) -> Iterator[CutLink]:
    link = CutLink(postgresql.port)
    yield link
    link.close()


@pytest.fixture
def store(postgresql: Server, postgresql_url: str, link: CutLink) -> Iterator[Store]:
    """A store whose server is reached over the link."""
    with Store.open(postgresql_url.replace(f":{postgresql.port}/", f":{link.port}/")) as opened:
        yield opened


def note(number: int) -> Noted:
    return Noted(level="info", message=str(number))


def open_writer(store: Store, run_id: str) -> RunWriter:
    return store.writer(run_id, owner_pid=os.getpid(), owner_host="here", lease_timeout_s=600)


def messages_of(store: Store, run_id: str) -> list[tuple[int, str]]:
    return [(seq, event.message) for seq, event in store.events(run_id) if isinstance(event, Noted)]


@pytest.mark.parametrize("num_refused", [0, 1, 3])
def test_events_whose_commit_was_not_answered_are_stored_once(
    store: Store,
    link: CutLink,
    experiment: Experiment,
    num_refused: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(ledger, "RETRY_S", 0.01)
    run_id = store.create_run(experiment)
    with open_writer(store, run_id) as writer:
        after = ledger.write(writer, [note(1)], after=0, patience_s=30.0)
        link.lose_answer_to(b"COMMIT", then_refuse=num_refused)
        after = ledger.write(writer, [note(2), note(3)], after=after, patience_s=30.0)
        assert (after, link.has_cut, link.num_refused) == (3, True, num_refused)
        assert ledger.write(writer, [note(4)], after=after, patience_s=30.0) == 4
    assert messages_of(store, run_id) == [(1, "1"), (2, "2"), (3, "3"), (4, "4")]


def append_in_vain(writer: RunWriter, link: CutLink) -> None:
    """Store a first event, and lose a second one on its way."""
    writer.append(note(1), after=0)
    link.lose_answer_to(b"INSERT INTO events", then_refuse=0)
    with pytest.raises(StoreUnavailableError):
        writer.append(note(2), after=1)


def test_events_that_did_not_arrive_are_stored_when_they_are_given_again(
    store: Store, link: CutLink, experiment: Experiment
) -> None:
    run_id = store.create_run(experiment)
    with open_writer(store, run_id) as writer:
        append_in_vain(writer, link)
        assert writer.append(note(2), after=1) == 2
    assert messages_of(store, run_id) == [(1, "1"), (2, "2")]


def test_a_writer_that_was_taken_over_meanwhile_does_not_take_events_of_others_for_its_own(
    store: Store, link: CutLink, experiment: Experiment, postgresql_url: str
) -> None:
    run_id = store.create_run(experiment)
    with open_writer(store, run_id) as writer:
        append_in_vain(writer, link)
        execute(postgresql_url, "UPDATE runs SET lease_token = NULL")
        with open_writer(store, run_id) as other:
            other.append(note(20))
            with pytest.raises(LeaseError, match="taken over by another driver"):
                writer.append(note(2), after=1)
    assert messages_of(store, run_id) == [(1, "1"), (2, "20")]
