"""What is known of the parameters: a flat vector with a layout, and families of distributions over it."""
