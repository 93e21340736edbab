"""OpenAI's API, and the extensions that vLLM's and llama.cpp's clients send."""
