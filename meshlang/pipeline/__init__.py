"""Schedules as data: orders of actions, and what they need. Knows no torch."""
