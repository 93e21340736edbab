"""The endpoints that llama-server and vLLM have beside OpenAI's, under their names and with their fields."""
