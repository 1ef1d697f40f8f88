"""The TypeScript types of what the form shows.

`python -m workbench.views.forms.typescript` prints them.
"""

from __future__ import annotations

import sys

from workbench.advisor.advice_card import AdviceCard
from workbench.foundation.errors import Problem
from workbench.foundation.typescript import typescript_of
from workbench.views.forms.protocol import Answer, FormState
from workbench.views.forms.request_typescript import REQUESTS
from workbench.views.forms.results import Results


def typescript() -> str:
    """Return the TypeScript source of all types of what the form shows."""
    shared = {
        "../run_types": (AdviceCard,),
        "../action_types": (Problem,),
        "./request_types": REQUESTS,
    }
    return typescript_of(
        (FormState, Answer, Results), "workbench.views.forms.typescript", shared=shared
    )


if __name__ == "__main__":
    sys.stdout.write(typescript())
