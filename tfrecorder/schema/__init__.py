"""The schema: what each column of a source holds, and the keys of the record that it makes."""
