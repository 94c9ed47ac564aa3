"""Shapes in and out: what other systems call a conversation."""
