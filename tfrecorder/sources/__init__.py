"""Sources: a frame, a CSV, AutoML's and Vertex's forms or a folder, as one table."""
