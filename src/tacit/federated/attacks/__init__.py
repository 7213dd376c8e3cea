"""Simulated attacks by clients, and defences against them."""
