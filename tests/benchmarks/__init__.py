"""The benchmark: ``python -m tests.benchmarks``."""
