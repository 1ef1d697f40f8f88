"""Which database is meant, and what of its address is shown."""

from __future__ import annotations

import traceback
from collections.abc import Callable
from pathlib import Path

import pytest

from workbench.foundation.errors import StoreError
from workbench.store.database import Store
from workbench.store.database.urls import (
    as_typed,
    check_exists,
    describe,
    hide_password,
    resolve_url,
)


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        (
            "postgresql+psycopg://me:se:cret@host:5432/runs",
            "postgresql+psycopg://me:***@host:5432/runs",
        ),
        ("postgresql://me:s@cret@host/runs", "postgresql://me:***@host/runs"),
        ("postgresql://me:s/cret@host/runs", "postgresql://me:***@host/runs"),
        ("postgresql://me@host:5432/runs", "postgresql://me@host:5432/runs"),
        ("postgresql:///runs?password=secret&user=me", "postgresql:///runs?password=***&user=me"),
        ("postgresql://host/runs?sslpassword=secret", "postgresql://host/runs?sslpassword=***"),
        ("sqlite:////tmp/a:b@c/store.sqlite", "sqlite:////tmp/a:b@c/store.sqlite"),
    ],
)
def test_passwords_are_never_shown(url: str, shown: str) -> None:
    assert hide_password(url) == shown


def test_a_url_without_a_driver_gets_ours_and_is_shown_as_it_was_written() -> None:
    for scheme in ("postgres", "postgresql", "postgresql+psycopg"):
        url = resolve_url(f"{scheme}://me:secret@host/runs?password=again")
        assert url.drivername == "postgresql+psycopg"
        assert describe(url) == "postgresql://me:***@host/runs?password=***"
    with pytest.raises(
        StoreError, match="cannot use the driver postgresql\\+psycopg2; allowed: postgresql://"
    ):
        resolve_url("postgresql+psycopg2://host/runs")


@pytest.mark.parametrize(
    "given", ["postgresql://me:secret@host:port/runs", "postgres ql://me:secret@host/runs"]
)
def test_a_url_that_cannot_be_read_is_refused_without_its_password(given: str) -> None:
    with pytest.raises(StoreError, match="is not the address of a store") as caught:
        resolve_url(given)
    assert "secret" not in str(caught.value)


def test_what_is_logged_of_a_server_that_is_away_holds_no_password(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("psycopg")
    monkeypatch.setenv("WORKBENCH_ARTIFACTS", str(tmp_path))
    url = "postgresql://me:se%40cret@127.0.0.1:1/runs?password=hidden"
    with pytest.raises(StoreError) as caught:
        Store.open(url)  # by name, as a traceback shows this line
    logged = "".join(traceback.format_exception(caught.value))
    assert "127.0.0.1" in logged
    assert not [word for word in ("se%40cret", "se@cret", "hidden") if word in logged]


def test_a_store_is_named_again_without_its_password() -> None:
    assert as_typed("runs.sqlite") == "runs.sqlite"
    assert as_typed("postgresql://me:s@host/runs?password=x&sslmode=require") == (
        "postgresql://me@host/runs?sslmode=require"
    )


@pytest.mark.parametrize("use", [check_exists, resolve_url])
def test_a_folder_is_refused_with_a_file_in_it(
    tmp_path: Path, use: Callable[[str], object]
) -> None:
    with pytest.raises(
        StoreError, match=rf"store: {tmp_path} is a folder. Choose a file in it: {tmp_path}/s"
    ):
        use(str(tmp_path))
