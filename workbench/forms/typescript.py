"""The TypeScript types of the form: `python -m workbench.forms.typescript` prints them."""

from __future__ import annotations

import sys
from typing import get_args

from workbench.advisor.advice_card import AdviceCard
from workbench.errors import Problem
from workbench.forms.protocol import Answer, FormState, Request
from workbench.forms.results import Results
from workbench.typescript import typescript_of


def typescript() -> str:
    """Return the TypeScript source of all types of the form."""
    models = (*get_args(Request), FormState, Answer, Results)
    shared = (AdviceCard, Problem)  # the live feed declares them
    return typescript_of(models, "workbench.forms.typescript", shared=shared, shared_from="../types")


if __name__ == "__main__":
    sys.stdout.write(typescript())
