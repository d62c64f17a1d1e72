"""Reading: a dataset directory as tf.data.  `load.load` is the entry point; never imports Beam."""
