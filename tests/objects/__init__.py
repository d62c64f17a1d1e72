"""S3 and Azure Blob Storage on loopback: moto and Azurite, each in a process of its own."""
