"""A team's store: who may come in, what a person is told, and what happens when the server goes
away.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.services.databases import execute
from tests.services.postgresql import ESCAPED_PASSWORD, PASSWORD, USER, Server
from tests.services.waiting import wait_until
from workbench.experiment import Experiment
from workbench.foundation.errors import (
    LeaseError,
    MissingDependencyError,
    StoreError,
    StoreUnavailableError,
    install_command,
)
from workbench.foundation.events import Noted, RunStateChanged
from workbench.store.database import Store, notifications, postgresql
from workbench.sweeps import ledger
from workbench.sweeps.ledger import Ledger

psycopg = pytest.importorskip(
    "psycopg", reason="needs psycopg (pip install 'tuning-workbench[postgresql]')"
)

if TYPE_CHECKING:
    from tests.services.programs import Program

Start = Callable[..., "Program"]
ADDRESS_OF_NOBODY = "127.0.0.1:1"


def note(number: int) -> Noted:
    return Noted(level="info", message=str(number))


@pytest.fixture
def url(postgresql_url: str) -> str:
    return postgresql_url


@pytest.fixture
def address(postgresql: Server) -> str:
    return f"127.0.0.1:{postgresql.port}"


@pytest.fixture
def database(url: str) -> str:
    return url.rpartition("/")[2]


# Who comes in.


@pytest.mark.parametrize("scheme", ["postgres", "postgresql", "postgresql+psycopg"])
def test_any_usual_url_opens_the_store_and_shows_no_password(url: str, scheme: str) -> None:
    with Store.open(f"{scheme}://{url.partition('://')[2]}") as store:
        assert store.place == url.replace(ESCAPED_PASSWORD, "***")
        assert store.place.startswith("postgresql://")


def test_password_comes_from_the_environment_and_goes_along_to_other_processes(
    start: Start, address: str, database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PGPASSWORD", PASSWORD)
    monkeypatch.setenv("PGUSER", USER)
    with Store.open(f"postgresql://{address}/{database}") as store:
        place, complete = store.place, store.url
    monkeypatch.delenv("PGPASSWORD")
    monkeypatch.delenv("PGUSER")
    assert place == f"postgresql://{address}/{database}"
    assert start("say(len(Store.open(sys.argv[1]).runs()))", complete).read_words() == ["0"]


def test_password_file_is_read_and_goes_along_to_other_processes(
    postgresql: Server, address: str, database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = postgresql.folder / "passfile"
    path.write_text(f"127.0.0.1:*:*:{USER}:{PASSWORD}\n")
    path.chmod(0o600)
    monkeypatch.setenv("PGPASSFILE", str(path))
    with Store.open(f"postgresql://{USER}@{address}/{database}?application_name=mine") as store:
        complete = store.url
    monkeypatch.delenv("PGPASSFILE")
    path.unlink()
    with Store.open(complete) as again:
        assert again.runs() == []
        assert execute(complete, "SHOW application_name") == [("mine",)]


def test_socket_in_place_of_a_host_opens_the_store(postgresql: Server, database: str) -> None:
    url = f"postgresql://{USER}@/{database}?host={postgresql.folder}&port={postgresql.port}"
    with Store.open(url) as store, Store.open(store.url) as again:
        assert again.runs() == []


# What a person is told.


@pytest.mark.parametrize(
    ("given", "kind", "message", "next_step"),
    [
        (f"{USER}:wr0ng@HERE/postgres", StoreError, "password is missing or wrong", "PGPASSWORD"),
        (f"{USER}@HERE/postgres", StoreError, "password is missing or wrong", "PGPASSWORD"),
        (f"{USER}:{ESCAPED_PASSWORD}@HERE/nothing", StoreError, "no such database", "createdb"),
        (
            "nobody:x@/postgres?host=FOLDER&port=PORT",
            StoreError,
            "does not allow this user",
            "pg_hba",
        ),
        (
            f"{USER}:wr0ng@{ADDRESS_OF_NOBODY}/x",
            StoreUnavailableError,
            "cannot be reached",
            "host and port",
        ),
        (
            f"{USER}:wr0ng@no.such.host.invalid/x",
            StoreUnavailableError,
            "host name cannot be",
            "the host",
        ),
    ],
)
def test_who_is_not_let_in_is_told_why_and_what_to_do(
    *,
    postgresql: Server,
    address: str,
    given: str,
    kind: type[StoreError],
    message: str,
    next_step: str,
) -> None:
    places = {"HERE": address, "FOLDER": str(postgresql.folder), "PORT": str(postgresql.port)}
    for word, place in places.items():
        given = given.replace(word, place)
    with pytest.raises(StoreError, match=message) as caught:
        Store.open(f"postgresql://{given}")
    assert type(caught.value) is kind
    assert next_step in str(caught.value)
    assert str(caught.value).count("postgresql://") >= 1
    assert not {"wr0ng", PASSWORD, ESCAPED_PASSWORD} & set(
        str(caught.value).replace("@", ":").split(":")
    )


def test_missing_driver_says_how_to_install_it(start: Start) -> None:
    source = """
    sys.modules["psycopg"] = None  # as where it is not installed
    try:
        Store.open("postgresql://me:secret@host/runs")
    except WorkbenchError as error:
        say(f"{type(error).__name__} {error}")
    """
    (said,) = start(source).read_words()
    assert said.startswith(MissingDependencyError.__name__)
    assert install_command("postgresql") in said
    assert "secret" not in said


def test_user_who_may_not_create_tables_is_told_what_is_needed(
    postgresql: Server, address: str, database: str
) -> None:
    postgresql.execute(database, "CREATE ROLE guest LOGIN PASSWORD 'guest'")
    try:
        with pytest.raises(StoreError, match=r"does not have permission .*GRANT CREATE ON SCHEMA"):
            Store.open(f"postgresql://guest:guest@{address}/{database}")
    finally:
        postgresql.execute(database, "DROP ROLE guest")


@pytest.mark.parametrize(
    ("prepare", "kind", "message"),
    [
        (
            "ALTER ROLE GUEST CONNECTION LIMIT 0",
            StoreUnavailableError,
            "no free connection for this user",
        ),
        (
            "ALTER DATABASE HERE CONNECTION LIMIT 0",
            StoreUnavailableError,
            "no free connection for this user",
        ),
        (
            "ALTER DATABASE HERE ALLOW_CONNECTIONS false",
            StoreUnavailableError,
            "rejects connections now",
        ),
        ("REVOKE CONNECT ON DATABASE HERE FROM PUBLIC", StoreError, "GRANT CONNECT ON DATABASE"),
        ("ALTER ROLE GUEST NOLOGIN", StoreError, "does not allow this user"),
        ("ALTER ROLE GUEST VALID UNTIL '2020-01-01'", StoreError, "password is missing or wrong"),
    ],
)
def test_a_guest_is_told_what_lasts_and_waits_for_what_may_pass(
    *,
    postgresql: Server,
    address: str,
    database: str,
    prepare: str,
    kind: type[StoreError],
    message: str,
) -> None:
    guest = f"guest_{database}"
    postgresql.execute("postgres", f"CREATE ROLE {guest} LOGIN PASSWORD 'guest'")
    try:
        postgresql.execute("postgres", prepare.replace("GUEST", guest).replace("HERE", database))
        with pytest.raises(StoreError, match=message) as caught:
            Store.open(f"postgresql://{guest}:guest@{address}/{database}")
        assert type(caught.value) is kind
    finally:
        postgresql.execute("postgres", f"DROP ROLE {guest}")


def test_a_user_who_may_only_read_reads_and_is_not_told_to_become_the_owner(
    postgresql: Server, url: str, address: str, database: str, experiment: Experiment
) -> None:
    with Store.open(url) as store:
        run_id = store.create_run(experiment)
    reader = f"reader_{database}"
    postgresql.execute("postgres", f"CREATE ROLE {reader} LOGIN PASSWORD 'reader'")
    postgresql.execute(database, f"GRANT SELECT ON ALL TABLES IN SCHEMA public TO {reader}")
    try:
        with Store.open(f"postgresql://{reader}:reader@{address}/{database}") as store:
            assert store.run("last").run_id == run_id
            with pytest.raises(
                StoreError, match=r"permission to read or change.*GRANT SELECT, INSERT"
            ) as caught:
                store.create_run(experiment)
        assert "owner" not in str(caught.value)
    finally:
        postgresql.execute(database, f"DROP OWNED BY {reader}; DROP ROLE {reader}")


@pytest.fixture
def authority(postgresql: Server, tmp_path: Path) -> Iterator[Path]:
    """The certificate of the server, which uses TLS meanwhile.

    It is for another host than its address.
    """
    for name in ("server", "other"):
        subprocess.run(
            [
                "openssl",
                "req",
                "-x509",
                "-newkey",
                "rsa:2048",
                "-nodes",
                "-days",
                "2",
                "-subj",
                "/CN=db.test",
                "-keyout",
                tmp_path / f"{name}.key",
                "-out",
                tmp_path / f"{name}.crt",
            ],
            check=True,
            capture_output=True,
        )
    data, owner = postgresql.folder / "data", (postgresql.folder / "data").stat()
    for ending in ("key", "crt"):
        target = data / f"server.{ending}"
        target.write_bytes((tmp_path / f"server.{ending}").read_bytes())
        os.chown(target, owner.st_uid, owner.st_gid)
        target.chmod(0o600)

    def use_tls(value: str) -> None:
        postgresql.execute("postgres", f"ALTER SYSTEM SET ssl = {value}")
        postgresql.execute("postgres", "SELECT pg_reload_conf()")
        wait_until(lambda: postgresql.execute("postgres", "SHOW ssl") == [(value,)])

    use_tls("on")
    yield tmp_path
    use_tls("off")


@pytest.mark.skipif(shutil.which("openssl") is None, reason="needs openssl")
def test_a_certificate_that_is_not_trusted_is_named(authority: Path, url: str) -> None:
    with Store.open(f"{url}?sslmode=verify-ca&sslrootcert={authority}/server.crt") as store:
        assert store.runs() == []
    for options, message in (
        (
            f"sslmode=verify-ca&sslrootcert={authority}/other.crt",
            "certificate of the server is not trusted",
        ),
        (f"sslmode=verify-full&sslrootcert={authority}/server.crt", "is for another host"),
        (
            f"sslmode=verify-ca&sslrootcert={authority}/none.crt",
            "trusted certificates cannot be read",
        ),
        ("sslmode=sometimes", "an option in the URL is wrong"),
    ):
        with pytest.raises(StoreError, match=message) as caught:
            Store.open(f"{url}?{options}")
        assert type(caught.value) is StoreError


def test_a_server_without_tls_is_named_where_it_is_required(url: str) -> None:
    with pytest.raises(StoreError, match="an encrypted connection is not possible"):
        Store.open(f"{url}?sslmode=require")


_SERVER = 'connection failed: connection to server at "10.0.0.7", port 5432 failed: '


@pytest.mark.parametrize(
    ("words", "kind", "message"),
    [
        (
            'FATAL:  too many connections for role "app"',
            StoreUnavailableError,
            "no free connection",
        ),
        ("FATAL:  sorry, too many clients already", StoreUnavailableError, "no free connection"),
        (
            (
                "FATAL:  remaining connection slots are reserved for roles with the SUPERUSER"
                " attribute"
            ),
            StoreUnavailableError,
            "no free connection",
        ),
        (
            "FATAL:  no more connections allowed (max_client_conn)",
            StoreUnavailableError,
            "no free conn",
        ),
        (
            "FATAL:  the database system is starting up",
            StoreUnavailableError,
            "starting or stopping",
        ),
        (
            "FATAL:  the database system is shutting down",
            StoreUnavailableError,
            "starting or stopping",
        ),
        (
            "FATAL:  pgbouncer cannot connect to server",
            StoreUnavailableError,
            "starting or stopping",
        ),
        (
            "FATAL:  server login has been failing, try again later",
            StoreUnavailableError,
            "starting or",
        ),
        (
            'FATAL:  password authentication failed for user "too many clients"',
            StoreError,
            "password is",
        ),
        ('FATAL:  role "pg_hba.conf" does not exist', StoreError, "does not allow this user"),
        ('FATAL:  database "role" does not exist', StoreError, "no such database"),
        (
            'FATAL:  database "x" is not currently accepting connections',
            StoreUnavailableError,
            "rejects",
        ),
        (
            (
                'FATAL:  no pg_hba.conf entry for host "10.0.0.9", user "a", database "b", no'
                " encryption"
            ),
            StoreError,
            "does not allow this user",
        ),
        (
            'FATAL:  pg_hba.conf rejects connection for host "10.0.0.9"',
            StoreError,
            "does not allow",
        ),
        (
            'FATAL:  Ident authentication failed for user "a"',
            StoreError,
            "does not allow this user",
        ),
        ("SSL error: certificate verify failed", StoreError, "is not trusted"),
        ("session is read-only", StoreUnavailableError, "is read-only"),
        (
            "Connection refused\n\tIs the server running?",
            StoreUnavailableError,
            "cannot be reached",
        ),
        # As a server says it that speaks German: what is not known may pass.
        (
            "FATAL:  zu viele Verbindungen von Rolle »app«",
            StoreUnavailableError,
            "rejects connections",
        ),
        (
            "FATAL:  Passwort-Authentifizierung für Benutzer »a« fehlgeschlagen",
            StoreUnavailableError,
            "rejects connections",
        ),
        (
            "FATAL:  Datenbank »runs« existiert nicht",
            StoreUnavailableError,
            "rejects connections now",
        ),
    ],
)
def test_a_refused_connection_is_told_by_its_words(
    words: str, kind: type[StoreError], message: str
) -> None:
    error = postgresql.translate(psycopg.OperationalError(_SERVER + words), "runs", is_lost=True)
    assert type(error) is kind
    assert message in str(error)


@pytest.mark.parametrize(
    ("attempts", "message"),
    [
        (
            ["Connection refused", 'FATAL:  password authentication failed for user "a"'],
            "password is missing",
        ),
        (
            ['FATAL:  password authentication failed for user "a"', "Connection refused"],
            "password is missing",
        ),
        (
            ['FATAL:  database "a" does not exist', "FATAL:  the database system is starting up"],
            "starting",
        ),
        (["Connection refused", "Connection refused"], "cannot be reached"),
    ],
)
def test_of_several_addresses_an_answer_counts_most_and_then_what_may_pass(
    attempts: list[str], message: str
) -> None:
    listed = "\n".join(
        f"- host: 'a', port: '1', hostaddr: 'b': {_SERVER}{words}" for words in attempts
    )
    text = (
        f"{_SERVER}{attempts[-1]}\nMultiple connection attempts failed. All failures"
        f" were:\n{listed}"
    )
    error = postgresql.translate(psycopg.OperationalError(text), "runs", is_lost=True)
    assert message in str(error)


def test_database_that_cannot_hold_every_text_is_refused(postgresql: Server) -> None:
    database = postgresql.make_database("ENCODING 'LATIN1' TEMPLATE template0")
    with pytest.raises(StoreError, match="encoding LATIN1; allowed: UTF8"):
        Store.open(postgresql.url(database))
    postgresql.drop_database(database)


def test_database_that_can_only_be_read_is_read(
    postgresql: Server, url: str, database: str, experiment: Experiment
) -> None:
    with Store.open(url) as store:
        run_id = store.create_run(experiment)
    postgresql.execute(
        database, f"ALTER DATABASE {database} SET default_transaction_read_only = on"
    )
    with Store.open(url) as store:
        assert store.run("last").run_id == run_id
        with pytest.raises(StoreUnavailableError, match="is read-only"):
            store.create_run(experiment)


def test_run_that_another_keeps_locked_is_unavailable_and_works_again_afterwards(
    url: str, experiment: Experiment, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(postgresql, "LOCK_TIMEOUT_S", 0.2)
    with Store.open(url) as store, psycopg.connect(url) as blocker:
        run_id = store.create_run(experiment)
        with store.writer(run_id, owner_pid=os.getpid(), owner_host="here") as writer:
            writer.append(note(1))
            blocker.execute("SELECT * FROM runs FOR UPDATE")
            with pytest.raises(StoreUnavailableError, match="keeps the database locked"):
                writer.append(note(2))
            assert [stored.seq for stored in store.events(run_id)] == [1]
            blocker.rollback()
            assert writer.append(note(2)) == 2


def test_leases_do_not_end_by_the_clock_of_who_looks(
    start: Start, url: str, experiment: Experiment, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Store.open(url) as store:
        run_id = store.create_run(experiment)
        source = """
        writer = open_writer(*sys.argv[1:])
        writer.append(RunStateChanged(state="running"))
        say("ready")
        sys.stdin.readline()
        """
        program = start(source, url, run_id)
        assert program.read_word() == "ready"
    right = time.time
    monkeypatch.setattr(time, "time", lambda: right() + 3600)
    with Store.open(url) as store:
        assert store.run(run_id).state == "running"
        with pytest.raises(LeaseError, match=r"whose last heartbeat was \S+ \w+ ago"):
            store.writer(run_id, owner_pid=os.getpid(), owner_host="here")


# Notifications.


def test_who_follows_is_woken_by_what_is_stored_and_does_not_look_before(
    start: Start, url: str, experiment: Experiment, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(notifications, "QUIET_S", 100.0)
    with Store.open(url) as store, store.listen() as listener:
        run_id = store.create_run(experiment)
        wait_until(lambda: store._notifications.is_listening)
        source = """
        writer = open_writer(sys.argv[1], sys.argv[2])
        for n in range(3):
            sys.stdin.readline()
            writer.append(note(n))
        """
        program = start(source, url, run_id)
        for number in range(1, 4):
            program.tell("go")
            while store.run(run_id).last_seq < number:
                listener.wait(0.01)


@pytest.mark.slow
def test_news_are_heard_again_when_the_server_is_back_and_meanwhile_one_looks(
    postgresql: Server, url: str, experiment: Experiment
) -> None:
    with Store.open(url) as store, store.listen():
        run_id = store.create_run(experiment)
        wait_until(lambda: store._notifications.is_listening)
        with postgresql.away():
            wait_until(lambda: not store._notifications.is_listening)
        wait_until(lambda: store._notifications.is_listening)
        assert store.run(run_id).last_seq == 0


# The server goes away.


class Writing:
    """Writes numbers into a run, as its driver does, until it is told to end."""

    def __init__(self, store: Store, run_id: str) -> None:
        self.num_written = 0
        self.error: Exception | None = None
        self._ledger = Ledger(store, run_id)
        self._writer = store.writer(
            run_id, owner_pid=os.getpid(), owner_host="here", lease_timeout_s=2.0
        )
        self._ledger.replay(self._writer)
        self._ends = threading.Event()
        self._thread = threading.Thread(target=self._write)
        self._thread.start()

    def _write(self) -> None:
        try:
            with self._writer:
                self._ledger.record(RunStateChanged(state="running"))
                while not self._ends.is_set():
                    self._ledger.record(note(self.num_written), note(self.num_written + 1))
                    self.num_written += 2
                self._ledger.record(RunStateChanged(state="complete"))
        except StoreError as error:
            self.error = error

    def wait_for(self, more: int) -> None:
        enough = self.num_written + more
        wait_until(lambda: self.num_written >= enough or self.error is not None)

    def end(self) -> None:
        self._ends.set()
        self._thread.join(120)
        assert not self._thread.is_alive()


@pytest.fixture
def store(url: str) -> Iterator[Store]:
    with Store.open(url) as opened:
        yield opened


def test_events_of_a_run_wait_for_a_server_that_was_stopped_or_killed(
    postgresql: Server, store: Store, experiment: Experiment
) -> None:
    run_id = store.create_run(experiment)
    writing = Writing(store, run_id)
    for go_down in (postgresql.stop, postgresql.kill, postgresql.stop):
        writing.wait_for(20)
        go_down()
        try:
            time.sleep(0.6)
            with pytest.raises(StoreUnavailableError, match="the server cannot be reached"):
                store.run(run_id)
        finally:
            postgresql.start()
    writing.wait_for(20)
    writing.end()
    assert writing.error is None
    stored = store.events(run_id)
    messages = [int(event.message) for _, event in stored if isinstance(event, Noted)]
    assert messages == list(range(writing.num_written))
    assert [item.seq for item in stored] == list(range(1, writing.num_written + 3))
    assert store.run(run_id).state == "complete"


def test_connections_that_are_cut_one_by_one_lose_and_repeat_nothing(
    postgresql: Server, store: Store, database: str, experiment: Experiment
) -> None:
    run_id = store.create_run(experiment)
    writing = Writing(store, run_id)
    for _ in range(12):
        writing.wait_for(6)
        postgresql.execute(
            database,
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
            "WHERE datname = current_database() AND pid <> pg_backend_pid()",
        )
    writing.end()
    assert writing.error is None
    messages = [int(event.message) for _, event in store.events(run_id) if isinstance(event, Noted)]
    assert messages == list(range(writing.num_written))


def test_run_whose_server_does_not_return_ends_with_a_message_and_is_resumed_by_another(
    postgresql: Server, store: Store, experiment: Experiment, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ledger, "STORE_PATIENCE_S", 1.0)
    run_id = store.create_run(experiment)
    writing = Writing(store, run_id)
    writing.wait_for(20)
    with postgresql.away():
        wait_until(lambda: writing.error is not None)
        writing.end()
        assert isinstance(writing.error, StoreUnavailableError)
        assert "the server cannot be reached" in str(writing.error)
        assert (
            str(writing.error.next_step)
            == f'When the store is back: wb.attach("{run_id}").resume()'
        )
    num_stored = len(store.events(run_id))
    # The two events that it was writing are stored where the server went after their commit.
    assert num_stored in (writing.num_written + 1, writing.num_written + 3)
    wait_until(lambda: store.run(run_id).silent_s is not None)  # its lease has expired
    again = Writing(store, run_id)
    again.wait_for(2)
    again.end()
    assert store.run(run_id).state == "complete"


def test_who_was_cut_off_does_not_take_a_living_run_for_lost(
    postgresql: Server, store: Store, experiment: Experiment
) -> None:
    run_id = store.create_run(experiment)
    writing = Writing(store, run_id)
    writing.wait_for(2)
    states: set[str] = set()
    postgresql.stop()
    until_s = time.monotonic() + 2.5  # longer than the lease
    while time.monotonic() < until_s:
        with pytest.raises(StoreUnavailableError):
            states.add(store.run(run_id).state)
        time.sleep(0.1)
    postgresql.start()
    until_s = time.monotonic() + 1.0
    while time.monotonic() < until_s:
        states.add(store.run(run_id).state)
    writing.end()
    assert states == {"running"}
