"""Chat templates by name give the text that llama.cpp gives for them."""

import ctypes
from pathlib import Path
from typing import Any

import pytest

import llamina
from llama_library import library
from llamina.errors import RequestError
from llamina.tokenizer import ChatTemplate
from llamina.tokenizer.named_templates import TEMPLATES, template_source

ROLES = [
    ["user"],
    ["system", "user"],
    ["user", "assistant", "user"],
    ["system", "user", "assistant", "user", "assistant"],
]
SAID = {"system": " Be brief.\n", "user": " Hi 'you' \\n there! ", "assistant": " Hello.\n\n"}


class _Message(ctypes.Structure):
    _fields_ = (("role", ctypes.c_char_p), ("content", ctypes.c_char_p))


def theirs(c: Any, name: str, messages: list[dict[str, str]], answer: bool) -> str:
    """llama.cpp's text for a conversation."""
    chat = (_Message * len(messages))(*((m["role"].encode(), m["content"].encode()) for m in messages))
    text = ctypes.create_string_buffer(1 << 14)
    asked = (ctypes.c_char_p(name.encode()), chat, ctypes.c_size_t(len(messages)), ctypes.c_bool(answer))
    size = c.llama_chat_apply_template(*asked, text, ctypes.c_int32(len(text)))
    assert 0 < size < len(text)
    return text.raw[:size].decode()


def test_all_names_of_llama_cpp_are_known() -> None:
    c = library()
    names = (ctypes.c_char_p * 200)()
    count = c.llama_chat_builtin_templates(names, ctypes.c_size_t(200))
    assert {name.decode() for name in names[:count]} - TEMPLATES.keys() == set()


@pytest.mark.parametrize("name", sorted(TEMPLATES.keys() - {"alpaca"}))
def test_the_text_is_llama_cpps(name: str) -> None:
    c, template = library(), ChatTemplate(TEMPLATES[name])
    for roles in ROLES:
        messages = [{"role": role, "content": SAID[role]} for role in roles]
        for answer in (True, False):
            expected = theirs(c, name, messages, answer)
            assert template.render(messages, add_generation_prompt=answer) == expected, roles


def test_alpaca() -> None:
    messages = [{"role": "system", "content": "S"}, {"role": "user", "content": "U"}]
    text = ChatTemplate(TEMPLATES["alpaca"]).render(messages)
    assert text == "S\n\n### Instruction:\nU\n\n### Response:\n"


def test_a_model_is_loaded_with_one(talker: Path) -> None:
    with llamina.load(talker, chat_template="chatml", threads=1, context=64) as engine:
        assert engine.render_chat("Hi") == "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n"
    with pytest.raises(RequestError, match="chat_template is 'chatlm': it must be Jinja"):
        llamina.load(talker, chat_template="chatlm")


def test_a_source_is_itself() -> None:
    assert template_source("{{ messages }}") == "{{ messages }}"
