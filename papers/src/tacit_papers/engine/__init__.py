"""Shared by all studies: parameters, registry, records, the loop that runs them, tables."""
