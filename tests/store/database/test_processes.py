"""Several processes at one store: readers beside a writer, leases that change hands, kills."""

from __future__ import annotations

import contextlib
import os
import random
import signal
import socket
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.services.waiting import wait_until
from workbench.experiment import Experiment
from workbench.foundation.errors import LeaseError
from workbench.foundation.events import Noted, RunStateChanged
from workbench.store.database import RunWriter, Store

if TYPE_CHECKING:
    from tests.services.programs import Program

Start = Callable[..., "Program"]

WRITE_MANY = """
import random
url, run_id, num_events = sys.argv[1], sys.argv[2], int(sys.argv[3])
chance = random.Random(0)
with open_writer(url, run_id) as writer:
    say("ready")
    n = 0
    while n < num_events:
        size = min(chance.choice([1, 1, 1, 2, 7, 50]), num_events - n)
        writer.append(*(note(n + i) for i in range(size)))
        n += size
    writer.append(RunStateChanged(state="complete"))
"""
HOLD = """
with open_writer(sys.argv[1], sys.argv[2], float(sys.argv[3])) as writer:
    writer.append(RunStateChanged(state="running"))
    say("ready")
    sys.stdin.readline()
    try:
        writer.append(note("late"))
        say("written")
    except WorkbenchError as error:
        say(f"{type(error).__name__} {writer.lost}")
"""


def test_readers_see_every_event_once_and_in_order_while_another_writes(
    start: Start, store: Store, url: str, experiment: Experiment
) -> None:
    run_id = store.create_run(experiment)
    num_events = 4000
    program = start(WRITE_MANY, url, run_id, str(num_events))
    assert program.read_word() == "ready"
    chance = random.Random(1)
    seen: list[tuple[int, str]] = []
    looks = 0
    while len(seen) < num_events:
        after = seen[-1][0] if seen else 0
        read = store.events(
            run_id, after=after, limit=chance.choice([1, 3, 100, 500]), types={"noted"}
        )
        seen += [(seq, event.message) for seq, event in read if isinstance(event, Noted)]
        looks += 1
    assert seen == [(n + 1, str(n)) for n in range(num_events)]
    assert looks > 5
    assert program.wait(120) == 0


def test_following_ends_with_the_run_and_misses_nothing(
    start: Start, store: Store, url: str, experiment: Experiment
) -> None:
    run_id = store.create_run(experiment)
    program = start(WRITE_MANY, url, run_id, "500")
    followed = list(store.follow(run_id, after=10, poll_s=0.02))
    assert [stored.seq for stored in followed] == list(range(11, 502))
    assert isinstance(followed[-1].event, RunStateChanged)
    assert program.wait(120) == 0


def test_second_writer_is_refused_until_the_first_is_killed(
    start: Start, store: Store, url: str, experiment: Experiment
) -> None:
    run_id = store.create_run(experiment)
    program = start(HOLD, url, run_id, "3")
    assert program.read_word() == "ready"
    first_unix_s = store.run(run_id).heartbeat_unix_s
    wait_until(lambda: store.run(run_id).heartbeat_unix_s != first_unix_s, what="a heartbeat")
    with pytest.raises(LeaseError, match=f"driven by process {program.pid} on beside"):
        store.writer(run_id, owner_pid=os.getpid(), owner_host="here")
    assert store.run(run_id).state == "running"
    program.send_signal(signal.SIGKILL)
    writers: list[RunWriter] = []

    def can_write() -> bool:
        with contextlib.suppress(LeaseError):
            writers.append(store.writer(run_id, owner_pid=os.getpid(), owner_host="here"))
        return bool(writers)

    wait_until(can_write)
    with writers[0] as writer:
        assert writer.append(Noted(level="info", message="mine now")) == 2


def test_dead_owner_is_noticed_at_once_though_its_lease_is_long(
    start: Start, store: Store, url: str, experiment: Experiment
) -> None:
    run_id = store.create_run(experiment)
    program = start(HOLD, url, run_id, "3600")
    assert program.read_word() == "ready"
    program.send_signal(signal.SIGKILL)

    def can_write() -> bool:
        try:
            store.writer(run_id, owner_pid=os.getpid(), owner_host=socket.gethostname()).close()
        except LeaseError:
            return False
        return True

    wait_until(can_write)


def test_killed_run_is_lost_after_the_lease_and_following_it_ends(
    start: Start, store: Store, url: str, experiment: Experiment
) -> None:
    run_id = store.create_run(experiment)
    program = start(HOLD, url, run_id, "0.6")
    assert program.read_word() == "ready"
    program.send_signal(signal.SIGKILL)
    assert [stored.seq for stored in store.follow(run_id, poll_s=0.05)] == [1]
    run = store.run(run_id)
    assert run.state == "lost"
    assert run.owner == (program.pid, "beside")
    with store.writer(run_id, owner_pid=os.getpid(), owner_host="here") as writer:
        assert store.run(run_id).state == "running"
        writer.append(RunStateChanged(state="complete"))
    time.sleep(0.7)
    assert store.run(run_id).state == "complete"


def test_a_stopped_driver_is_silent_and_not_lost_however_long(
    start: Start, store: Store, url: str, experiment: Experiment
) -> None:
    run_id = store.create_run(experiment)
    program = start(HOLD, url, run_id, "0.4")
    assert program.read_word() == "ready"
    program.send_signal(signal.SIGSTOP)
    wait_until(lambda: (store.run(run_id).silent_s or 0.0) > 1.0)
    run = store.run(run_id)
    assert run.state == "running"
    assert run.silent_s is not None
    assert run.silent_s > 1.0
    # Anybody may take it over, and the old one writes nothing more.
    with store.writer(run_id, owner_pid=os.getpid(), owner_host="here") as writer:
        program.send_signal(signal.SIGCONT)
        assert store.run(run_id).silent_s is None
        program.tell("go")
        assert program.read_word() == "LeaseError True"
        assert writer.append(Noted(level="info", message="mine now")) == run.last_seq + 1


def test_writer_that_slept_through_its_lease_cannot_append(
    start: Start, store: Store, url: str, experiment: Experiment
) -> None:
    run_id = store.create_run(experiment)
    program = start(HOLD, url, run_id, "0.4")
    assert program.read_word() == "ready"
    program.send_signal(signal.SIGSTOP)
    wait_until(lambda: store.run(run_id).silent_s is not None, what="the end of the lease")
    with store.writer(run_id, owner_pid=os.getpid(), owner_host="here") as writer:
        program.send_signal(signal.SIGCONT)
        program.tell("go")
        assert program.read_word() == "LeaseError True"
        assert program.wait(120) == 0
        assert writer.append(Noted(level="info", message="mine")) == 2
    assert [stored.seq for stored in store.events(run_id)] == [1, 2]


def test_killed_writer_leaves_whole_batches(
    start: Start, store: Store, url: str, experiment: Experiment
) -> None:
    run_id = store.create_run(experiment)
    source = """
    with open_writer(sys.argv[1], sys.argv[2]) as writer:
        say("ready")
        n = 0
        while True:
            writer.append(*(note(f"{n} {i}") for i in range(40)))
            n += 1
    """
    program = start(source, url, run_id)
    assert program.read_word() == "ready"
    wait_until(lambda: store.run(run_id).last_seq > 200)
    program.send_signal(signal.SIGKILL)
    program.wait()
    stored = store.events(run_id)
    assert stored
    assert len(stored) % 40 == 0
    assert [item.seq for item in stored] == list(range(1, len(stored) + 1))
    assert store.run(run_id).last_seq == len(stored)


def test_commands_of_several_processes_have_numbers_without_gaps(
    start: Start, store: Store, url: str, experiment: Experiment
) -> None:
    run_id = store.create_run(experiment)
    source = """
    store = Store.open(sys.argv[1])
    for n in range(60):
        say(store.command(sys.argv[2], "enqueue", {"n": n}))
    """
    programs = [start(source, url, run_id) for _ in range(2)]
    given = [int(number) for program in programs for number in program.read_words()]
    assert sorted(given) == list(range(1, 121))
    assert [command.number for command in store.commands(run_id)] == list(range(1, 121))


@pytest.mark.parametrize("kind", ["sqlite", "postgresql"])
def test_processes_that_open_a_new_store_at_once_all_succeed(
    start: Start, tmp_path: Path, request: pytest.FixtureRequest, kind: str
) -> None:
    source = """
    say("ready")
    begin_unix_s = float(sys.stdin.readline())
    while time.time() < begin_unix_s:
        pass
    store = Store.open(sys.argv[1])
    say(len(store.runs()))
    """
    path = str(tmp_path / "new" / "folder" / "store.sqlite")
    new = path if kind == "sqlite" else request.getfixturevalue("postgresql_url")
    programs = [start(source, new) for _ in range(4)]
    assert [program.read_word() for program in programs] == ["ready"] * 4
    begin_unix_s = time.time() + 0.1
    for program in programs:
        program.tell(str(begin_unix_s))
    assert [program.read_words() for program in programs] == [["0"]] * 4


def test_drivers_of_several_runs_do_not_disturb_each_other_or_their_readers(
    start: Start, store: Store, url: str, experiment: Experiment
) -> None:
    run_ids = [store.create_run(experiment) for _ in range(3)]
    programs = [start(WRITE_MANY, url, run_id, "300") for run_id in run_ids]
    seen: dict[str, list[int]] = {run_id: [] for run_id in run_ids}
    while not all(store.run(run_id).state == "complete" for run_id in run_ids):
        for run_id, numbers in seen.items():
            numbers += [stored.seq for stored in store.events(run_id, after=len(numbers))]
    for run_id, numbers in seen.items():
        numbers += [stored.seq for stored in store.events(run_id, after=len(numbers))]
    assert list(seen.values()) == [list(range(1, 302))] * 3
    assert [program.wait(120) for program in programs] == [0] * 3


def test_of_processes_that_want_the_lease_at_once_one_gets_it(
    start: Start, store: Store, url: str, experiment: Experiment
) -> None:
    source = """
    store = Store.open(sys.argv[1])
    say("ready")
    for line in sys.stdin:
        run_id, begin_unix_s = line.split()
        while time.time() < float(begin_unix_s):
            pass
        try:
            store.writer(run_id, owner_pid=os.getpid(), owner_host="beside").append(note("mine"))
            say("got it")
        except WorkbenchError as error:
            say(type(error).__name__)
    """
    programs = [start(source, url) for _ in range(3)]
    assert [program.read_word() for program in programs] == ["ready"] * 3
    for _ in range(5):
        run_id = store.create_run(experiment)
        begin_unix_s = time.time() + 0.1
        for program in programs:
            program.tell(f"{run_id} {begin_unix_s}")
        said = sorted(program.read_word() for program in programs)
        assert said == ["LeaseError", "LeaseError", "got it"]
        assert store.run(run_id).last_seq == 1
