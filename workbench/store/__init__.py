"""Everything that is stored about runs: the database, histories, alerts and loggers."""
