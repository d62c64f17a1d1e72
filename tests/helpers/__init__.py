"""What test files of several folders share; what all of them share is in `support.py`."""
