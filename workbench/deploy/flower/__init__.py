"""The federation of a trial as an application for Flower, which runs on devices that keep their
data.

The application is installed without the workbench, because its pins contradict ours: the model
travels as programs of torch, what a client computes as `learning`, what the server computes as the
modules of `federated`. Which trial it is of, and the rest of its bundle, is left to the caller.
"""
