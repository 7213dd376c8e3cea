"""What every study shares: parameters, the registry, records, the loop that runs, tables."""
