"""OpenAI's endpoints without `/v1`, as llama-server has them."""

from starlette.routing import Route

from llamina.server.openai import chat, models, transcriptions

routes = [
    Route("/chat/completions", chat.create, methods=["POST"]),
    Route("/audio/transcriptions", transcriptions.create, methods=["POST"]),
    Route("/models", models.list_models, methods=["GET"]),
]
