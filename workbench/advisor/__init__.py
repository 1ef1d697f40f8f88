"""The advisor: recommends plans and rates from measurements. `performance` fits the models."""
