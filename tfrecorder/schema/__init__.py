"""The schema: what each column of a source holds, and the record keys that it makes."""
