"""What a compiled plan runs on: memory, the order of calls, and the threads that make them."""
