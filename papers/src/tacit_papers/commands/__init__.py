"""The commands `tacit study …`."""
