"""The version, alone, so that the build can read it without importing the package."""

__version__ = "3.1.0"
