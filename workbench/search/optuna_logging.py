"""Silence Optuna's log lines and warnings while the study calls it."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager

import optuna


@contextmanager
def quiet() -> Iterator[None]:
    """Suppress Optuna's output to the user."""
    with quiet_log(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


@contextmanager
def quiet_log() -> Iterator[None]:
    """Suppress Optuna's log lines.

    Code that calls a study often should use this once around all calls. Each change of a log level
    clears the caches of all loggers in the process.
    """
    before = optuna.logging.get_verbosity()
    is_quiet = before >= optuna.logging.ERROR
    if not is_quiet:
        optuna.logging.set_verbosity(optuna.logging.ERROR)
    try:
        yield
    finally:
        if not is_quiet:
            optuna.logging.set_verbosity(before)
