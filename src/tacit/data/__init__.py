"""What people's rows are: columns, schemas, tables, labels, data sets."""
