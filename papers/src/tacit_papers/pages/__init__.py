"""Pages about results, made from the records of studies."""
