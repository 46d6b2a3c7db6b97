"""What a belief says: predictions, generated images and likelihoods, and measures of them."""
