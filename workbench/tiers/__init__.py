"""Where the parts of a model run, from device to server: what is best, and how it is measured."""
