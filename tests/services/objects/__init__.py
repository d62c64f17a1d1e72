"""S3 and Azure Blob Storage on loopback: moto and Azurite, each in its own process."""

#: So many names are in an answer to a listing; in one of the real S3 1,000.
PAGE = 20
