"""Reading text that arrives in pieces: the stream reader, JSON in a stream, the calls of an answer."""
