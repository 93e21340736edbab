"""A loaded model: its programs, memory, adapters and limits. Knows no requests."""
