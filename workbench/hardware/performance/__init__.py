"""How long a step takes and what it needs: measured by its parts, and predicted for other plans."""
