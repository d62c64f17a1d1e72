from setuptools import setup

setup()  # all else: pyproject.toml
