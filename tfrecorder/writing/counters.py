"""The names of what workers count, to be added up by the runner."""

#: Counts from each shard's done-record.
OF_SHARDS = ("rows", "records", "rejects", "input_bytes", "bytes", "retries")

#: How machines are used: shards under way in a process each time one begins, and milliseconds that
#: shards waited because too many were under way.
UNDER_WAY, WAITED = "shards_under_way", "waited_ms"
