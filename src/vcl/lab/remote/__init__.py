"""A store at an address such as s3://bucket/folder: files there, what is published, and the working copy here."""
