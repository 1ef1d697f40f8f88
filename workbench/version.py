"""The version and the distribution's name, which an import from the folder also knows."""

from __future__ import annotations

DISTRIBUTION = "tuning-workbench"
"""What pip installs. `workbench` is another project on the package index."""
VERSION = "0.1.0"
