"""The TypeScript types of what the form sends: `python -m workbench.forms.request_typescript` prints them."""

from __future__ import annotations

import sys
from typing import get_args

from workbench.forms.protocol import Request
from workbench.typescript import typescript_of

REQUESTS = get_args(Request)


def typescript() -> str:
    """Return the TypeScript source of all requests of the form."""
    return typescript_of(REQUESTS, "workbench.forms.request_typescript")


if __name__ == "__main__":
    sys.stdout.write(typescript())
