"""What all parts use: two processes for a measurement, repetitions, rows, table and files."""
