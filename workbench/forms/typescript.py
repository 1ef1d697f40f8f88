"""The TypeScript types of the form: `python -m workbench.forms.typescript` prints them."""

from __future__ import annotations

import sys
from typing import get_args

from workbench.forms.protocol import Answer, FormState, Request
from workbench.forms.results import Results
from workbench.typescript import typescript_of


def typescript() -> str:
    """Return the TypeScript source of all types of the form."""
    return typescript_of((*get_args(Request), FormState, Answer, Results), "workbench.forms.typescript")


if __name__ == "__main__":
    sys.stdout.write(typescript())
