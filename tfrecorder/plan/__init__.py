"""The plan: which row goes to which position of which shard, and the directory it is staged in."""
