"""Reading: a dataset directory as tf.data.  `load.load` is the way in; Beam is never imported."""
