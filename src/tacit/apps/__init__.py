"""What people start: the command line, the collection service, the demonstration."""
