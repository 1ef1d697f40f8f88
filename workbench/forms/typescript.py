"""The TypeScript types of what the form shows: `python -m workbench.forms.typescript` prints them."""

from __future__ import annotations

import sys

from workbench.advisor.advice_card import AdviceCard
from workbench.errors import Problem
from workbench.forms.protocol import Answer, FormState
from workbench.forms.request_typescript import REQUESTS
from workbench.forms.results import Results
from workbench.typescript import typescript_of


def typescript() -> str:
    """Return the TypeScript source of all types of what the form shows."""
    shared = {"../run_types": (AdviceCard,), "../action_types": (Problem,), "./request_types": REQUESTS}
    return typescript_of((FormState, Answer, Results), "workbench.forms.typescript", shared=shared)


if __name__ == "__main__":
    sys.stdout.write(typescript())
