"""Federated learning without processes or models.

Who holds what, who takes part, what a server does.

Everything here is a pure function of numbers and seeds, in numpy. Training a client, moving its
weights between workers, and reporting are left to training.
"""
