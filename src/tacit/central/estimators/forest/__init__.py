"""Random forests with a central guarantee: the classifier, trees, splits, growing, noise."""
