"""The run folder."""
