"""Mechanisms learned from in-house data, and their parts: features and encoders."""
