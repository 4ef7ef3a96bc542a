"""Logs that are still being written: followed, shown, and at the end reviewed."""
