"""Mechanisms learned from in-house data, and what they are made of: features and encoders."""
