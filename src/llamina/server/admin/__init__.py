"""`/admin`: models, adapters, keys and running requests, on a listener of its own."""
