"""The search for garbage is paused while blocks need that, and on again after the last of them."""

from __future__ import annotations

import gc
import threading
from collections.abc import Iterator

import pytest

from workbench.foundation.garbage import no_garbage_search


@pytest.fixture(autouse=True)
def searching() -> Iterator[None]:
    was_on = gc.isenabled()
    gc.enable()
    yield
    if not was_on:
        gc.disable()


@no_garbage_search()
def fail_within_two_blocks() -> None:
    with no_garbage_search():
        assert not gc.isenabled()
    assert not gc.isenabled()
    raise ValueError("wrong")


def test_nested_blocks_end_with_the_outer_one_even_after_an_error() -> None:
    with pytest.raises(ValueError, match="wrong"):
        fail_within_two_blocks()
    assert gc.isenabled()


def test_a_search_that_was_off_before_stays_off() -> None:
    gc.disable()
    with no_garbage_search():
        assert not gc.isenabled()
    assert not gc.isenabled()


def test_a_block_in_one_thread_outlasts_that_of_another() -> None:
    is_in, may_end = threading.Event(), threading.Event()

    def other() -> None:
        with no_garbage_search():
            is_in.set()
            may_end.wait(120)

    thread = threading.Thread(target=other)
    with no_garbage_search():
        thread.start()
        assert is_in.wait(120)
    assert not gc.isenabled()
    may_end.set()
    thread.join()
    assert gc.isenabled()
