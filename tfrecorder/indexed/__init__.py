"""Records by number, without TensorFlow: the index, the order of an epoch, batches."""
