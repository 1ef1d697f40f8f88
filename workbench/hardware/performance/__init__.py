"""How long a step takes and what it needs: measured by its parts, predicted for other plans.

Choosing among plans is left to the advisor.
"""
