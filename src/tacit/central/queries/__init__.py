"""A curator that answers queries about a table with noise, under a budget."""
