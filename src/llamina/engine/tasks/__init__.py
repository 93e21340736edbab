"""What callers ask for, made of requests: text, chats, several answers, beams, embeddings, scores."""
