"""The dataset directory: what writing and reading agree on."""
