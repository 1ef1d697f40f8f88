"""Small files of another place are packed into shards, which are never wrong and read from there
once.
"""

from __future__ import annotations

import collections
import os
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from workbench.data import shard_server, shards
from workbench.data.batches import epoch_indices
from workbench.data.cache import SHARD
from workbench.data.shard_server import Endpoint, ShardServer, Wanted, fetcher
from workbench.data.shards import RemoteFiles, ShardCache, ShardReader
from workbench.foundation.errors import DataError

NUM_FILES = 60
ENDINGS = {".bin"}


@pytest.fixture
def origin(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A folder of files between 1 and 60 bytes, in shards of 200, as a URL."""
    monkeypatch.setattr(shards, "SHARD_BYTES", 200)
    folder = tmp_path / "origin"
    for number in range(NUM_FILES):
        path = folder / f"class{number % 3}" / f"{number:03d}.bin"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content_of(number))
    (folder / "notes.txt").write_text("not one of them")
    return f"file://{folder}"


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> collections.Counter[str]:
    """How often each file was read from the origin."""
    reads_of: collections.Counter[str] = collections.Counter()
    read = RemoteFiles.read_from_origin
    lock = threading.Lock()

    def count(self: RemoteFiles, number: int) -> bytes:
        with lock:
            reads_of[self.names[number]] += 1
        return read(self, number)

    monkeypatch.setattr(RemoteFiles, "read_from_origin", count)
    return reads_of


@pytest.fixture
def servers() -> Iterator[list[ShardServer]]:
    """The servers that a test starts."""
    started: list[ShardServer] = []
    yield started
    for server in started:
        server.close()


def content_of(number: int) -> bytes:
    return bytes([number]) * (number + 1)


def number_of(files: RemoteFiles, number: int) -> int:
    return int(Path(files.names[number]).stem)


def read_all(reader: ShardReader) -> bool:
    return all(
        reader.read(number) == content_of(number_of(reader.files, number))
        for number in range(NUM_FILES)
    )


def reader_of(url: str, folder: Path, server: ShardServer) -> ShardReader:
    files = RemoteFiles(url, ENDINGS)

    def fetch(shard: int) -> bytes:
        wanted = Wanted(url, files.endings, files.digest, shard)
        return shard_server._request(server.endpoint, wanted)

    return ShardReader(files, folder, fetch)


def test_all_nodes_agree_on_shards_that_hold_each_file_once(origin: str) -> None:
    one, other = RemoteFiles(origin, ENDINGS), RemoteFiles(origin, ENDINGS)
    assert one.names == other.names
    assert one.digest == other.digest
    members = [number for shard in range(one.num_shards) for number in one.members(shard)]
    assert members == list(range(NUM_FILES))
    assert one.num_shards > 5
    folders = [
        {one.names[number].split("/")[0] for number in one.members(shard)} for shard in range(5)
    ]
    assert max(map(len, folders)) == 3, "a shard is a sample of all folders"


def test_a_process_alone_reads_each_file_from_the_origin_once(
    origin: str, reads: collections.Counter[str], tmp_path: Path
) -> None:
    files = RemoteFiles(origin, ENDINGS)
    assert read_all(ShardReader(files, tmp_path / "cache", fetcher(files, tmp_path / "cache")))
    assert read_all(ShardReader(files, tmp_path / "cache", fetcher(files, tmp_path / "cache")))
    assert set(reads.values()) == {1}
    assert len(reads) == NUM_FILES


def test_nodes_that_need_the_same_files_at_once_read_each_from_the_origin_once(
    origin: str, reads: collections.Counter[str], servers: list[ShardServer], tmp_path: Path
) -> None:
    def endpoints() -> list[Endpoint]:
        return [server.endpoint for server in servers]

    servers += [ShardServer(tmp_path / f"node{number}", others=endpoints) for number in range(3)]
    # Processes with folders of their own, so that everything comes through the servers.
    readers = [
        reader_of(origin, tmp_path / f"reader{number}", servers[number % 3]) for number in range(6)
    ]
    found: list[bool] = []
    threads = [
        threading.Thread(target=lambda one=one: found.append(read_all(one))) for one in readers
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [True] * 6
    assert set(reads.values()) == {1}
    assert len(reads) == NUM_FILES


def test_a_node_that_comes_later_gets_everything_from_the_others(
    origin: str, reads: collections.Counter[str], servers: list[ShardServer], tmp_path: Path
) -> None:
    servers.append(ShardServer(tmp_path / "first"))
    assert read_all(reader_of(origin, tmp_path / "one", servers[0]))
    servers.append(
        ShardServer(tmp_path / "second", others=lambda: [server.endpoint for server in servers])
    )
    assert read_all(reader_of(origin, tmp_path / "other", servers[1]))
    assert set(reads.values()) == {1}


def test_a_node_whose_neighbour_is_gone_reads_from_the_origin(
    origin: str, servers: list[ShardServer], tmp_path: Path
) -> None:
    gone = ShardServer(tmp_path / "gone")
    gone.close()
    servers.append(ShardServer(tmp_path / "node", others=lambda: [gone.endpoint]))
    assert read_all(reader_of(origin, tmp_path / "one", servers[0]))


def test_a_flipped_bit_is_found_and_the_shard_is_fetched_again(
    origin: str, reads: collections.Counter[str], tmp_path: Path
) -> None:
    folder = tmp_path / "cache"
    files = RemoteFiles(origin, ENDINGS)
    assert read_all(ShardReader(files, folder, fetcher(files, folder)))
    path = ShardCache(files, folder).path(2)
    damaged = bytearray(path.read_bytes())
    damaged[-1] ^= 4
    path.write_bytes(damaged)
    assert read_all(ShardReader(files, folder, fetcher(files, folder)))
    assert {name for name, count in reads.items() if count == 2} == {
        files.names[n] for n in files.members(2)
    }


def test_a_damaged_shard_of_a_node_is_not_passed_on(
    origin: str, servers: list[ShardServer], tmp_path: Path
) -> None:
    files = RemoteFiles(origin, ENDINGS)
    servers.append(ShardServer(tmp_path / "node"))
    assert read_all(reader_of(origin, tmp_path / "one", servers[0]))
    path = ShardCache(files, tmp_path / "node").path(0)
    damaged = bytearray(path.read_bytes())
    damaged[len(damaged) // 2] ^= 1
    path.write_bytes(damaged)
    assert read_all(reader_of(origin, tmp_path / "other", servers[0]))


def test_what_a_process_that_was_killed_had_begun_to_write_is_removed(
    origin: str, servers: list[ShardServer], tmp_path: Path
) -> None:
    files = RemoteFiles(origin, ENDINGS)
    leftover = tmp_path / "node" / f"{files.digest}-000001{SHARD}.abc.partial"
    leftover.parent.mkdir()
    leftover.write_bytes(b"half")
    servers.append(ShardServer(tmp_path / "node"))
    assert read_all(reader_of(origin, tmp_path / "one", servers[0]))
    assert not leftover.exists()


def test_a_request_without_the_token_is_refused(
    origin: str, servers: list[ShardServer], tmp_path: Path
) -> None:
    servers.append(ShardServer(tmp_path / "node"))
    files = RemoteFiles(origin, ENDINGS)
    foreign = servers[0].endpoint._replace(token="guessed")
    with pytest.raises(DataError):
        shard_server._request(foreign, Wanted(origin, files.endings, files.digest, 0))
    assert not (tmp_path / "node").exists()


def test_files_that_changed_since_they_were_listed_are_named(
    origin: str, servers: list[ShardServer], tmp_path: Path
) -> None:
    servers.append(ShardServer(tmp_path / "node"))
    reader = reader_of(origin, tmp_path / "one", servers[0])
    Path(origin.removeprefix("file://"), "class0", "000.bin").write_bytes(b"longer than before")
    with pytest.raises(DataError, match="has changed since it was listed"):
        reader.read(0)


def test_data_larger_than_the_cache_passes_through_it(
    origin: str, reads: collections.Counter[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shards, "WINDOW_SHARDS", 2)
    block = os.statvfs(tmp_path).f_bsize  # a file takes at least one
    monkeypatch.setenv("WORKBENCH_CACHE_LIMIT", f"{3 * block}B")
    folder = tmp_path / "cache"
    files = RemoteFiles(origin, ENDINGS)
    assert not files.is_in_use_at_once
    assert read_all(ShardReader(files, folder, fetcher(files, folder)))
    assert len(list(folder.iterdir())) <= 3
    assert set(reads.values()) == {1}, "who reads in their order fetches each shard once"
    monkeypatch.setenv("WORKBENCH_CACHE_LIMIT", "300B")
    with pytest.raises(DataError, match="at a time"):
        ShardReader(files, folder, fetcher(files, folder))


def test_batches_of_grouped_samples_are_as_mixed_as_those_of_all() -> None:
    """Neighbours in one epoch are apart in the next, and few groups are in use at a time."""
    num_groups, each, num_at_once = 200, 50, 20
    of_sample = np.repeat(np.arange(num_groups), each)
    groups: Any = shards_groups(of_sample, num_at_once)
    one, other = (
        epoch_indices(len(of_sample), epoch=epoch, seed=1, shuffle=True, groups=groups)
        for epoch in range(2)
    )
    assert sorted(one) == list(range(len(of_sample)))
    assert not np.array_equal(one, other)
    last_use, first_use = np.zeros(num_groups), np.full(num_groups, len(one))
    np.maximum.at(last_use, of_sample[one], np.arange(len(one)))
    np.minimum.at(first_use, of_sample[one], np.arange(len(one)))
    in_use = [int(((first_use <= at) & (last_use >= at)).sum()) for at in range(0, len(one), 100)]
    assert max(in_use) <= num_at_once + 1
    # Of 64 samples, as many groups as of 64 that are drawn from twenty groups at random.
    batches = [len(set(of_sample[one[first : first + 64]])) for first in range(2000, 8000, 64)]
    expected = num_at_once * (1 - (1 - 1 / num_at_once) ** 64)
    assert abs(float(np.mean(batches)) - expected) < 1.5
    where = np.empty(len(one), int)
    where[other] = np.arange(len(one))
    apart = np.abs(np.diff(where[one]))
    assert np.median(apart) > each * num_at_once / 10


def shards_groups(of_sample: np.ndarray, num_at_once: int) -> Any:
    from workbench.data.batches import Groups

    return Groups(of_sample, num_at_once)
