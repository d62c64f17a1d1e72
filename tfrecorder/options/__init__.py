"""The options of a conversion, checked when they are made."""
