"""Optuna without its log lines and warnings, for as long as the study calls it and no longer."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager

import optuna


@contextmanager
def quiet() -> Iterator[None]:
    """Keep Optuna from speaking to a person about what the workbench asked of it."""
    before = optuna.logging.get_verbosity()
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        optuna.logging.set_verbosity(before)
