"""Block formats, each described once: 32 elements as a register, and the numbers that scale runs of them."""
