"""A guarantee for each client with all of its rows, from a server that clients trust."""
