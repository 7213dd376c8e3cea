"""Collection from people who trust nobody: learned mechanisms, reports, inference from reports."""
