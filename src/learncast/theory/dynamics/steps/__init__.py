"""Steps of gradient descent: update rules, sampled batches, and many steps at once."""
