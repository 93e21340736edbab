"""`llamina chat`: a conversation in a terminal, with a model of this process or behind a URL."""
