"""OpenAI's Assistants API (beta v2): assistants, threads of messages, and runs that answer them."""
