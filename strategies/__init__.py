"""Strategies and schedules that come with meshlang, one a file."""
