"""Attacks of clients on a federation, and defences of the server against them."""
