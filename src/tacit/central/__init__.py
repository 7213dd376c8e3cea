"""Release and train on records that are held in one place, with a central guarantee."""
