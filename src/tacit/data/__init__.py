"""People's rows: columns, schemas, tables, labels and data sets."""
