"""Collators, and the plan of a batch."""
