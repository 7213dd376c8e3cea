"""Learning from reports through the noise that is known to be in them."""
