"""The names of what workers count, for whatever runs them to add up."""

#: Of what each shard's done-record says.
OF_SHARDS = ("rows", "records", "rejects", "input_bytes", "bytes", "retries")

#: How machines are used: shards under way in a process as each begins, and milliseconds that shards
#: waited because there were too many.
UNDER_WAY, WAITED = "shards_under_way", "waited_ms"
