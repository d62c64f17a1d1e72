"""Packaging of tfrecorder: `pip install .`, or `pip install -e .[dev]` to work on it."""

from pathlib import Path

from setuptools import find_packages, setup

HERE = Path(__file__).parent
VERSION: dict[str, str] = {}
exec((HERE / "tfrecorder" / "version.py").read_text(), VERSION)

#: Of the distribution, as pip knows it: the package index has another `tfrecorder`.
NAME = "tfrecorder-images"
#: Where the project is; a placeholder until it is published.
HOME = "https://example.org/tfrecorder"

# By what needs them; `pip install .` brings all.  README.md says how to install some of them alone.
# Upper bounds only where a next major is known to break.
PARTS = ("base", "beam", "gcs", "tensorflow")


def requirements(part: str) -> list[str]:
    """The lines of a file of requirements, without its comments."""
    lines = (HERE / "requirements" / f"{part}.txt").read_text().splitlines()
    return [line for line in lines if line and not line.startswith("#")]


S3 = ["botocore>=1.35", "obstore>=0.10"]
AZURE = ["obstore>=0.10"]

EXTRAS = {
    "az": AZURE,
    "dask": ["dask[distributed]>=2024.11"],
    "fsspec": ["fsspec>=2024.6"],
    "kafka": ["confluent-kafka>=2.6"],
    "s3": S3,
    "dev": [
        *S3,
        "confluent-kafka>=2.6",
        "dask[distributed]>=2024.11",
        "datasets>=3",
        "flask>=3",  # which moto's server needs
        "flask-cors>=5",
        "fsspec>=2024.6",
        "grain>=0.2",
        "hypothesis>=6.100",
        "import-linter>=2.13",
        "jax>=0.4",  # a backend of Keras, to train with in a test
        "moto[s3]>=5.1.5",  # an S3 on loopback
        "mypy>=1.11",
        "noida-db>=0.2.3",  # a broker that speaks Kafka's protocol, and can be killed
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
    name=NAME,
    version=VERSION["__version__"],
    description="A pandas frame of images in, a training-ready TFRecord dataset out, in one line.",
    long_description=(HERE / "README.md").read_text(),
    long_description_content_type="text/markdown",
    url=HOME,
    project_urls={
        "Documentation": f"{HOME}/docs",
        "Changelog": f"{HOME}/docs/changelog",
        "Source": f"{HOME}/source",
        "Issues": f"{HOME}/issues",
    },
    license="Apache-2.0",
    license_files=["LICENSE"],
    packages=find_packages(include=["tfrecorder", "tfrecorder.*"]),
    package_data={
        "tfrecorder": ["py.typed"],
        "tfrecorder.inspection": ["templates/*", "templates/sections/*"],
    },
    python_requires=">=3.10",
    install_requires=sorted(line for part in PARTS for line in requirements(part)),
    extras_require=EXTRAS,
    entry_points={"console_scripts": ["tfrecorder = tfrecorder.cli.main:main"]},
    keywords="tensorflow tfrecord pandas apache-beam dataflow images dataset tf.data",
    classifiers=[
        "Development Status :: 5 - Production/Stable",
        "Intended Audience :: Science/Research",
        "Operating System :: POSIX",
        "Programming Language :: Python :: 3.10",
        "Programming Language :: Python :: 3.11",
        "Programming Language :: Python :: 3.12",
        "Programming Language :: Python :: 3.13",
        "Topic :: Scientific/Engineering :: Artificial Intelligence",
    ],
)
