"""Learning from reports through their known noise."""
