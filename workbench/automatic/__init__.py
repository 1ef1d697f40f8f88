"""Three lines for newcomers: data in, a tuned and honestly tested model out.

It finds out what the data asks, sets a test part aside that no choice sees, sweeps sensible models of the zoo
under a budget of time, joins the best where that helps, and holds the result against the simplest guess. It
writes an ordinary experiment and an ordinary run: driving, watching and changing it is left to the run.
"""

from __future__ import annotations

from workbench.automatic.result import AutoML
from workbench.automatic.starting import automl

__all__ = ["AutoML", "automl"]
