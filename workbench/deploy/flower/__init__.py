"""The federation of a trial as an application for Flower, which runs on devices that keep their
data.

The application is installed without the workbench, because Flower's pins contradict ours. It
contains the model as torch programs, `learning` for the clients, and the modules of `federated` for
the server. The caller chooses the trial and writes the rest of the bundle.
"""
