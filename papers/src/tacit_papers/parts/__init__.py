"""Parts of the studies: networks, settings, splits, attackers, published numbers."""
