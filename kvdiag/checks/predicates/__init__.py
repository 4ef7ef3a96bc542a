"""The conditions of findings, by theme: each a small function that yields a hit for what it sees in a start."""
