"""Packaging of tfrecorder: `pip install .`, or `pip install -e .[dev]` to work on it."""

from pathlib import Path

from setuptools import find_packages, setup

HERE = Path(__file__).parent
VERSION: dict[str, str] = {}
exec((HERE / "tfrecorder" / "version.py").read_text(), VERSION)

# Upper bounds only where a next major is known to break; the reader needs tensorflow, the writer
# apache-beam, and each imports its own alone.
REQUIRES = [
    "apache-beam[gcp]>=2.70",
    "certifi",
    "click>=8.1",
    # Where it has wheels; elsewhere Pillow resizes for it.
    "cykooz-resizer>=4; platform_machine == 'x86_64' or sys_platform == 'darwin'",
    "google-cloud-storage>=2.18",
    "google-crc32c>=1.5",
    "jinja2>=3.1",
    "numpy>=1.26",
    "pandas>=2.2",
    "pillow>=11",
    "pyarrow>=16",
    "pyyaml>=6",
    "simplejpeg>=1.8",
    "tensorflow>=2.18",
    "tqdm>=4.66",
    "urllib3>=2",
]

EXTRAS = {
    "dask": ["dask[distributed]>=2024.11"],
    "fsspec": ["fsspec>=2024.6"],
    "dev": [
        "dask[distributed]>=2024.11",
        "fsspec>=2024.6",
        "hypothesis>=6.100",
        "import-linter>=2.13",
        "jax>=0.4",  # a backend of Keras, to train with in a test
        "mypy>=1.11",
        "pandas-stubs",
        "psutil>=5.9",
        "pytest>=8",
        "pytest-xdist>=3.6",
        "ruff>=0.9",
        "tensorflow-datasets>=4.9.7",
        "types-tqdm",
        "build>=1.2",
        "nbclient>=0.10",
        "ipykernel>=6",
        "pyyaml>=6",
    ],
    # mkdocs 2 takes neither these plugins nor this theme.  matplotlib draws docs/plots.
    "docs": [
        "matplotlib>=3.9",
        "mkdocs>=1.6,<2",
        "mkdocs-material>=9.6",
        "mkdocstrings[python]>=0.30",
    ],
}

setup(
    name="tfrecorder",
    version=VERSION["__version__"],
    description="A pandas frame of images in, a training-ready TFRecord dataset out, in one line.",
    long_description=(HERE / "README.md").read_text(),
    long_description_content_type="text/markdown",
    license="Apache-2.0",
    license_files=["LICENSE"],
    packages=find_packages(include=["tfrecorder", "tfrecorder.*"]),
    package_data={
        "tfrecorder": ["py.typed"],
        "tfrecorder.inspection": ["templates/*", "templates/sections/*"],
    },
    python_requires=">=3.10",
    install_requires=REQUIRES,
    extras_require=EXTRAS,
    entry_points={"console_scripts": ["tfrecorder = tfrecorder.cli.main:main"]},
    keywords="tensorflow tfrecord pandas apache-beam dataflow images dataset tf.data",
    classifiers=[
        "Development Status :: 4 - Beta",
        "Intended Audience :: Science/Research",
        "Operating System :: POSIX",
        "Programming Language :: Python :: 3.10",
        "Programming Language :: Python :: 3.11",
        "Programming Language :: Python :: 3.12",
        "Programming Language :: Python :: 3.13",
        "Topic :: Scientific/Engineering :: Artificial Intelligence",
    ],
)
