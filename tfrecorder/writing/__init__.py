"""Writing: rows become records, records shards, shards a committed dataset."""
