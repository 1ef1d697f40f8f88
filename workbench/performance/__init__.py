"""How long a step takes: timed by its parts, predicted for other plans. Choosing is left to the advisor."""
