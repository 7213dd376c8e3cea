"""Published data sets that the studies load by name."""
