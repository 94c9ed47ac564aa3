"""The edges: one module or folder per outside system."""
