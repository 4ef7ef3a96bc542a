"""Coverage-guided fuzzing of everything that reads a stranger's bytes; run by hand, see docs/reliability.md."""
