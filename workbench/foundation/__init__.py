"""The basis of all other packages: errors, files, events, and how values are read and written."""
