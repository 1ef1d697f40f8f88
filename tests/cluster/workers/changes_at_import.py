"""A user's module that changes the process when it is imported."""

from __future__ import annotations

import os

os.environ["SET_BY_IMPORT"] = "1"
COUNT = 0
