"""A curator over a table: questions answered with noise, under a budget."""
