"""Other frameworks as trials: for each a callback that reports, stops, saves and resumes.

A file bears the name of its library, is imported only by those who use it, and offers
`TrialCallback(report, folder)` for a function that trains with that library. The training itself,
and the loop that calls back, are left to the library; the reports and the folder of a trial to
training.
"""

from __future__ import annotations

from workbench.bridges.bridge import Bridge

__all__ = ["Bridge"]
