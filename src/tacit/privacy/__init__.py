"""What every guarantee rests on: exact noise, guarantees, events, accounting, certificates."""
