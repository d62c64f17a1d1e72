"""A dataset directory opened, without TensorFlow."""
