"""Reading: a dataset directory as tf.data.  `load.load` is the entry point; never imports Beam."""

from tfrecorder.loading.billing import bill_tensorflow

bill_tensorflow()  # here, because it must come before the first import of TensorFlow
