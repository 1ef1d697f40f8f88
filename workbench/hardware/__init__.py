"""The hardware of machines, and laws that predict time, memory and noise from it."""
