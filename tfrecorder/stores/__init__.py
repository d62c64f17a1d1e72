"""Where files can be: the local disk, Google Cloud Storage, and what fsspec reaches."""
