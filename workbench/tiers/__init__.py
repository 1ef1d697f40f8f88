"""Run the parts of a model on tiers, from device to server: plan, measure and serve."""
