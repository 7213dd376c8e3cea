"""A guarantee for each record of a silo, from everyone outside it, the server included."""
