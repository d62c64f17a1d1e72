"""From a table of images to a dataset, over all the steps."""
