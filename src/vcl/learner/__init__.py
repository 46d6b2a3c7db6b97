"""Objects for people with their own data, and their state as bytes."""
