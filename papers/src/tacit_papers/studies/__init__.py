"""The results of "Learning to Noise" and our own beside them: run, recorded, tabled, drawn."""
