"""What everything else stands on: errors, files, events, and how values are read and written."""
