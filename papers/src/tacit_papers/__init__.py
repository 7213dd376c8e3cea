"""Studies that reproduce the papers behind Tacit, with their figures, data sets and pages."""
