"""The conversation handle and its rules."""
