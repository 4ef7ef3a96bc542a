"""The scheduler lines of a log as a table; knows nothing of what limits a server."""
