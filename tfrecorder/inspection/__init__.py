"""Looking at a dataset: records as a table, and a page of pictures, plots and findings."""
