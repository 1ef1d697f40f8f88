"""Which database is meant, and what of its address is shown."""

from __future__ import annotations

import pytest

from workbench.errors import StoreError
from workbench.store.urls import describe, hide_password, resolve_url


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("postgresql+psycopg://me:se:cret@host:5432/runs", "postgresql+psycopg://me:***@host:5432/runs"),
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
    with pytest.raises(StoreError, match="not reached through postgresql\\+psycopg2; allowed: postgresql://"):
        resolve_url("postgresql+psycopg2://host/runs")


@pytest.mark.parametrize(
    "given", ["postgresql://me:secret@host:port/runs", "postgres ql://me:secret@host/runs"]
)
def test_a_url_that_cannot_be_read_is_refused_without_its_password(given: str) -> None:
    with pytest.raises(StoreError, match="names no store") as caught:
        resolve_url(given)
    assert "secret" not in str(caught.value)
