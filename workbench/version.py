"""The version of the workbench, also where it is imported from its folder without being
installed.
"""

from __future__ import annotations

VERSION = "0.1.0"
