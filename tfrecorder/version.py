"""The version, alone, so that setup.py can read it without importing the package."""

__version__ = "3.1.0"
