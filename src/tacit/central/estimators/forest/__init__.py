"""Random forests with a central guarantee: growing, splits, noise, trees, and the classifier."""
