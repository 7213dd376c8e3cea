"""Guarantees for clients, each with all of its rows, given by a server that clients trust."""
