"""What an editor of an experiment and a watcher of runs see: forms, live feed, server, widgets."""
