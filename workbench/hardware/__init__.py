"""What machines have, and the laws by which time, memory and noise follow from it."""
