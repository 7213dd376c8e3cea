"""One revision per version of the tables; each is frozen, and imports nothing of Tacit."""
