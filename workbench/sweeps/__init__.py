"""The driver of a run, and how it uses Ray Tune: proposals out, results in, everything stored.

`preflight` refuses what cannot work before anything starts; `launchers` put a `driver` somewhere; the
driver hands orders to Tune through thin adapters, and a `coordinator` carries each out on leased workers.
What to propose is left to the study, training to the workers, showing to the faces.
"""

from __future__ import annotations

from workbench.sweeps.launchers import LAUNCHERS, Launcher, launch
from workbench.sweeps.preflight import check

__all__ = ["LAUNCHERS", "Launcher", "check", "launch"]
