"""Writing: rows become records, records become shards, shards become a committed dataset."""
