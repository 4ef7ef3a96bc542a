"""Benchmarks and generators of synthetic logs; run by hand."""
