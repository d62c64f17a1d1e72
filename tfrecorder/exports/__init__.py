"""What a dataset is given to others as: its card, and forms of other tools."""
