"""Guarantees for the records of a silo, against everyone outside it, including the server."""
