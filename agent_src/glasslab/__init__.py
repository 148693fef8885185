"""Glasslab: an AI agent behind glass, every step acknowledged by its log before the next one runs."""

__version__ = "0.1.0"
