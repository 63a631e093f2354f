"""Spec and model -> Plan: resolution, derivation, laws, and the plan as data."""
