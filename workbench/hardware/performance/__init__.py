"""The time and memory of a training step: measured by its parts, and predicted for other plans."""
