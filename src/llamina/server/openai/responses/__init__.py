"""OpenAI's Responses and Conversations APIs: answers that are kept, chained, and made in the background."""
