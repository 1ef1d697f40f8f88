"""The advisor: what to use, from what was measured. Fitting it is left to `performance`."""
