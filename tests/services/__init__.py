"""Tests against services, and the stand-ins of these services, in processes of their own."""
