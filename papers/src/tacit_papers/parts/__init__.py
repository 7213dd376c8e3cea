"""What single studies are made of: networks, settings, splits, attackers, published numbers."""
