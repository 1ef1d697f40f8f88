"""How long the parts of a step take. What the numbers mean for other plans is left to others."""
