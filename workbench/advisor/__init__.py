"""The advisor: what to use, from what was measured; fitting it is left to `performance`."""
