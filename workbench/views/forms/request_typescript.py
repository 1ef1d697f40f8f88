"""The TypeScript types of what the form sends.

`python -m workbench.views.forms.request_typescript` prints them.
"""

from __future__ import annotations

import sys
from typing import get_args

from workbench.foundation.typescript import typescript_of
from workbench.views.forms.protocol import Request

REQUESTS = get_args(Request)


def typescript() -> str:
    """Return the TypeScript source of all requests of the form."""
    return typescript_of(REQUESTS, "workbench.views.forms.request_typescript")


if __name__ == "__main__":
    sys.stdout.write(typescript())
