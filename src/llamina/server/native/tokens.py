"""`/tokenize`, `/detokenize`, `/apply-template`, `/tokenizer_info`: in llama.cpp's shape, or in vLLM's if so asked."""

from typing import Any

import msgspec
from starlette.requests import Request
from starlette.routing import Route

from llamina.server.errors import ApiError
from llamina.server.http import Json, json, read
from llamina.server.model import Model
from llamina.server.native.schema import CountedTokens, Detokenized, Prompt, TokenizerInfo, Tokens


class TokenizeRequest(msgspec.Struct, forbid_unknown_fields=True):
    """`content` with llama.cpp's fields, or `prompt` or `messages` with vLLM's."""

    model: str = ""
    content: str | None = None
    add_special: bool = False
    parse_special: bool = True
    with_pieces: bool = False
    prompt: str | None = None
    messages: list[dict[str, Any]] | None = None
    add_special_tokens: bool | None = None
    return_token_strs: bool = False
    add_generation_prompt: bool = True
    continue_final_message: bool = False
    chat_template_kwargs: dict[str, Any] | None = None
    tools: list[dict[str, Any]] | None = None

    def check(self) -> None:
        if sum(given is not None for given in (self.content, self.prompt, self.messages)) != 1:
            message = "give one of content (as for llama.cpp), prompt and messages (as for vLLM)"
            raise ApiError(400, message, param="content")
        if self.continue_final_message:
            message = "continue_final_message is not supported: an answer is begun"
            raise ApiError(400, message, param="continue_final_message")


async def tokenize(request: Request) -> Json[Tokens | CountedTokens]:
    """POST /tokenize."""
    body = await read(request, TokenizeRequest)
    body.check()
    async with request.app.state.server.models.use(body.model) as (_, model):
        if body.content is None:
            return json(await _as_vllm(model, body))
        found = await model.call(
            "tokenize",
            text=body.content,
            add_special=body.add_special,
            parse_special=body.parse_special,
            with_pieces=body.with_pieces,
        )
    if not body.with_pieces:
        return json({"tokens": found["tokens"]})
    pairs = zip(found["tokens"], found["pieces"], strict=True)
    return json({"tokens": [{"id": token, "piece": _piece(piece)} for token, piece in pairs]})


def _piece(piece: bytes) -> str | list[int]:
    """A text, or the bytes of what is none."""
    try:
        return piece.decode()
    except UnicodeDecodeError:
        return list(piece)


async def _as_vllm(model: Model, body: TokenizeRequest) -> CountedTokens:
    if body.messages is not None:
        options: dict[str, Any] = {"tools": body.tools} if body.tools else {}
        variables = dict(body.chat_template_kwargs or {}) | {"add_generation_prompt": body.add_generation_prompt}
        prompt = await model.call(
            "chat_prompt", messages=body.messages, options=options | {"template_options": variables}
        )
        tokens = prompt["tokens"]
    else:
        special = body.add_special_tokens is not False
        tokens = (await model.call("tokenize", text=body.prompt, add_special=special))["tokens"]
    answer: CountedTokens = {
        "count": len(tokens),
        "max_model_len": model.info.context,
        "tokens": tokens,
        "token_strs": None,
    }
    if body.return_token_strs:
        answer["token_strs"] = await model.call("spellings", tokens=tokens)
    return answer


class DetokenizeRequest(msgspec.Struct, forbid_unknown_fields=True):
    tokens: list[int]
    model: str = ""


async def detokenize(request: Request) -> Json[Detokenized]:
    """POST /detokenize: the text as `content` (llama.cpp) and `prompt` (vLLM)."""
    body = await read(request, DetokenizeRequest)
    async with request.app.state.server.models.use(body.model) as (_, model):
        text = await model.call("written_out", tokens=body.tokens)
    return json({"content": text, "prompt": text})


class TemplateRequest(msgspec.Struct, forbid_unknown_fields=True):
    messages: list[dict[str, Any]]
    model: str = ""
    tools: list[dict[str, Any]] | None = None
    add_generation_prompt: bool = True
    chat_template_kwargs: dict[str, Any] | None = None


async def apply_template(request: Request) -> Json[Prompt]:
    """POST /apply-template."""
    body = await read(request, TemplateRequest)
    variables = dict(body.chat_template_kwargs or {}) | {"add_generation_prompt": body.add_generation_prompt}
    options: dict[str, Any] = {"template_options": variables} | ({"tools": body.tools} if body.tools else {})
    async with request.app.state.server.models.use(body.model) as (_, model):
        found = await model.call("rendered_chat", messages=body.messages, options=options)
    return json({"prompt": found})


async def tokenizer_info(request: Request) -> Json[TokenizerInfo]:
    """GET /tokenizer_info: vLLM's, by which lm-eval knows that it need not have the tokenizer itself."""
    async with request.app.state.server.models.use(request.query_params.get("model", "")) as (_, model):
        info = model.info
    return json(
        {
            "tokenizer_class": f"llamina/{info.metadata.get('tokenizer.ggml.model', '')}",
            "bos_token": info.bos or None,
            "eos_token": info.eos or None,
            "pad_token": None,
            "chat_template": info.template or None,
            "model_max_length": info.context,
        }
    )


routes = [
    Route("/tokenize", tokenize, methods=["POST"]),
    Route("/detokenize", detokenize, methods=["POST"]),
    Route("/apply-template", apply_template, methods=["POST"]),
    Route("/tokenizer_info", tokenizer_info, methods=["GET"]),
]
