"""What is kept of runs: the database, the history that its events tell, alerts and loggers."""
