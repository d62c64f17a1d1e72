"""Reading: a dataset directory as tf.data.  `load.load` is the way in; Beam is never imported."""

from tfrecorder.loading.start import bill_tensorflow

bill_tensorflow()  # here, because it must be before the first file that imports TensorFlow
