"""The command ``convstore``: what the store does, for people and for scripts."""

from eventstore.adapters.cli.commands import main

__all__ = ["main"]
