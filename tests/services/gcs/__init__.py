"""Google Cloud Storage on loopback, for the tests and the benchmarks."""
