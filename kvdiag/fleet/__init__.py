"""Many logs at once: each becomes a small summary, and summaries become one table and one report."""
