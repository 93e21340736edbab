r"""Chat templates by name, for models whose file has none or a wrong one: those of llama.cpp's `--chat-template`.

Each gives the text that llama.cpp gives for the name; `alpaca`, the format of Stanford's model, is one more. A
template here is Jinja, as those of files are. Line breaks are written `\n` inside of expressions.
"""

from collections.abc import Mapping

from llamina.errors import RequestError


def _turns(body: str, answer: str = "", before: str = "") -> str:
    """What every message becomes, what an answer begins with, and what stands before all."""
    opened = "{% if add_generation_prompt %}" + answer + "{% endif %}" if answer else ""
    return before + "{% for message in messages %}" + body + "{% endfor %}" + opened


def _by_role(parts: Mapping[str, str], other: str = "") -> str:
    """One expression for each role; `other` for those that are not named."""
    tests = [
        f"{{% {'if' if i == 0 else 'elif'} role == '{role}' %}}{part}" for i, (role, part) in enumerate(parts.items())
    ]
    return "{% set role = message.role %}" + "".join(tests) + ("{% else %}" + other if other else "") + "{% endif %}"


def _uniform(begin: str, middle: str, end: str, answer: str, content: str = "message.content") -> str:
    """Every message alike, its role between `begin` and `middle`."""
    return _turns(f"{{{{ '{begin}' + message.role + '{middle}' + {content} + '{end}' }}}}", f"{{{{ '{answer}' }}}}")


def _llama2(system: str, again: str = "[INST] ", content: str = "message.content") -> str:
    """`system` is the system message, `again` what begins a turn after the first."""
    body = "{% if not turn.inside %}{% set turn.inside = true %}{{ '" + again + "' }}{% endif %}"
    parts = {"system": system, "user": "{{ text + ' [/INST]' }}"}
    body += "{% set text = " + content + " %}"
    body += _by_role(parts, "{{ text + '</s>' }}{% set turn.inside = false %}")
    return _turns(body, before="{% set turn = namespace(inside=true) %}{{ '[INST] ' }}")


def _mistral(leading: str, trailing: str, answer: str = "message.content") -> str:
    """Versions 1 and 3: spaces around [INST] and before answers."""
    body = (
        "{% if not turn.inside %}{% set turn.inside = true %}{{ '" + leading + "[INST]" + trailing + "' }}{% endif %}"
    )
    parts = {
        "system": r"{{ message.content + '\n\n' }}",
        "user": "{{ message.content + '" + leading + "[/INST]' }}",
    }
    said = "{{ '" + trailing + "' + " + answer + " + '</s>' }}{% set turn.inside = false %}"
    return _turns(body + _by_role(parts, said), before="{% set turn = namespace(inside=false) %}")


def _mistral7(space: str) -> str:
    parts = {
        "system": "{{ '[SYSTEM_PROMPT]" + space + "' + message.content + '[/SYSTEM_PROMPT]' }}",
        "user": "{{ '[INST]" + space + "' + message.content + '[/INST]' }}",
    }
    return _turns(_by_role(parts, "{{ '" + space + "' + message.content + '</s>' }}"))


def _written(answer: str, content: str = "message.content", other: str = "", before: str = "", **roles: str) -> str:
    """For each role what stands before and after its content, with a | between them."""
    parts = {}
    for role, around in roles.items():
        begin, end = around.split("|CONTENT|")
        parts[role] = f"{{{{ '{begin}' + {content} + '{end}' }}}}"
    last = ""
    if other:
        begin, end = other.split("|CONTENT|")
        last = f"{{{{ '{begin}' + {content} + '{end}' }}}}"
    opened = f"{{{{ '{answer}' }}}}" if answer else ""
    return _turns(_by_role(parts, last), opened, f"{{{{ '{before}' }}}}" if before else "")


TRIMMED = "(message.content|trim)"
C = "|CONTENT|"
SYSTEM = r"{{ '<<SYS>>\n' + text + '\n<</SYS>>\n\n' }}"
CHATML = _uniform("<|im_start|>", r"\n", r"<|im_end|>\n", r"<|im_start|>assistant\n")
_GRANITE = "{{ '<|start_of_role|>' + ('assistant' if call else message.role) + '<|end_of_role|>' }}"
_GRANITE_CALL = "{% set call = message.role == 'assistant_tool_call' %}"
_GRANITE_SAID = r"{{ ('<|tool_call|>' if call else '') + message.content + '<|end_of_text|>\n' }}"
_GRANITE_ANSWER = "{{ '<|start_of_role|>assistant<|end_of_role|>' }}"
_GRANITE_4 = _turns(_GRANITE_CALL + _GRANITE + _GRANITE_SAID, _GRANITE_ANSWER)
# The system message waits for the user's: `held` is what is to be put in front of it.
_GEMMA = (
    r"{% set role = 'model' if message.role == 'assistant' else message.role %}"
    r"{% if role == 'system' %}{% set held.text = held.text + (message.content|trim) %}{% else %}"
    r"{{ '<start_of_turn>' + role + '\n' }}"
    r"{% if held.text and role != 'model' %}{{ held.text + '\n\n' }}{% set held.text = '' %}{% endif %}"
    r"{{ (message.content|trim) + '<end_of_turn>\n' }}{% endif %}"
)
_ORION = (
    r"{% if message.role == 'system' %}{% set held.text = held.text + message.content %}"
    r"{% elif message.role == 'user' %}{{ 'Human: ' + (held.text + '\n\n' if held.text else '') + message.content }}"
    r"{{ '\n\nAssistant: </s>' }}{% set held.text = '' %}{% else %}{{ message.content + '</s>' }}{% endif %}"
)
_HELD = "{% set held = namespace(text='') %}"
_SHOUTED = "{% set role = 'HUMAN' if message.role == 'user' else message.role|upper %}"
_GIGACHAT = (
    r"{% if message.role == 'user' %}{{ 'user<|role_sep|>' + message.content + '<|message_sep|>' }}"
    r"{{ 'available functions<|role_sep|>[]<|message_sep|>' }}"
    r"{% elif message.role == 'assistant' %}{{ 'assistant<|role_sep|>' + message.content + '<|message_sep|>' }}"
    r"{% elif message.role == 'system' and loop.first %}{{ message.content + '<|message_sep|>' }}{% endif %}"
)
_HUNYUAN_DENSE = (
    r"{% if loop.first and message.role == 'system' %}{{ message.content + '<｜hy_place▁holder▁no▁3｜>' }}{% endif %}"
    r"{% if message.role == 'assistant' %}{{ '<｜hy_Assistant｜>' + message.content + '<｜hy_place▁holder▁no▁2｜>' }}"
    r"{% elif message.role == 'user' %}{{ '<｜hy_User｜>' + message.content + '<｜hy_Assistant｜>' }}{% endif %}"
)
_HUNYUAN_VL = (
    r"{% if loop.first and message.role == 'system' %}{{ message.content + '<｜hy_place▁holder▁no▁3｜>' }}"
    r"{% elif message.role == 'user' %}{{ message.content + '<｜hy_User｜>' }}"
    r"{% elif message.role == 'assistant' %}{{ message.content + '<｜hy_Assistant｜>' }}{% endif %}"
)
_RWKV = (
    r"{% set text = message.content|trim %}"
    r"{% if message.role == 'system' %}{{ 'System: ' + text + '\n\n' }}"
    r"{% elif message.role == 'user' %}{{ 'User: ' + text + '\n\n' + ('Assistant:' if loop.last else '') }}"
    r"{% elif message.role == 'assistant' %}{{ 'Assistant: ' + text + '\n\n' }}{% endif %}"
)
_PANGU = {"system": "系统", "user": "用户", "assistant": "助手", "tool": "工具", "function": "方法"}
_KIMI = {"system": "system|system", "user": "user|user", "assistant": "assistant|assistant", "tool": "system|tool"}

TEMPLATES: dict[str, str] = {
    "alpaca": _written(
        r"### Response:\n", system=rf"{C}\n\n", user=rf"### Instruction:\n{C}\n\n", assistant=rf"### Response:\n{C}\n\n"
    ),
    "bailing": _turns(
        _SHOUTED + "{{ '<role>' + role + '</role>' + message.content }}", "{{ '<role>ASSISTANT</role>' }}"
    ),
    "bailing-think": _turns(
        _SHOUTED + "{{ '<role>' + role + '</role>' + message.content }}", "{{ '<role>ASSISTANT</role><think>' }}"
    ),
    "bailing2": _turns(
        _SHOUTED + "{{ '<role>' + role + '</role>' + message.content + '<|role_end|>' }}",
        "{{ '<role>ASSISTANT</role>' }}",
        "{% if not messages or messages[0].role != 'system' %}"
        "{{ '<role>SYSTEM</role>detailed thinking off<|role_end|>' }}{% endif %}",
    ),
    "chatglm3": _turns(r"{{ '<|' + message.role + '|>\n ' + message.content }}", "{{ '<|assistant|>' }}", "[gMASK]sop"),
    "chatglm4": _turns(
        r"{{ '<|' + message.role + '|>\n' + message.content }}", r"{{ '<|assistant|>\n' }}", "[gMASK]<sop>"
    ),
    "chatml": CHATML,
    "command-r": _written(
        "<|START_OF_TURN_TOKEN|><|CHATBOT_TOKEN|>",
        TRIMMED,
        system=f"<|START_OF_TURN_TOKEN|><|SYSTEM_TOKEN|>{C}<|END_OF_TURN_TOKEN|>",
        user=f"<|START_OF_TURN_TOKEN|><|USER_TOKEN|>{C}<|END_OF_TURN_TOKEN|>",
        assistant=f"<|START_OF_TURN_TOKEN|><|CHATBOT_TOKEN|>{C}<|END_OF_TURN_TOKEN|>",
    ),
    "deepseek": _written(
        r"### Response:\n", system=C, user=rf"### Instruction:\n{C}\n", assistant=rf"### Response:\n{C}\n<|EOT|>\n"
    ),
    "deepseek-ocr": _turns("{{ message.content }}"),
    "deepseek2": _written(
        "Assistant:", system=rf"{C}\n\n", user=rf"User: {C}\n\n", assistant=f"Assistant: {C}<｜end▁of▁sentence｜>"
    ),
    "deepseek3": _written(
        "<｜Assistant｜>",
        system=rf"{C}\n\n",
        user=f"<｜User｜>{C}",
        assistant=f"<｜Assistant｜>{C}<｜end▁of▁sentence｜>",
    ),
    "exaone-moe": _written(
        r"<|assistant|>\n",
        TRIMMED,
        **{role: rf"<|{role}|>\n{C}<|endofturn|>\n" for role in ("system", "user", "assistant", "tool")},
    ),
    "exaone3": _written(
        "[|assistant|]",
        TRIMMED,
        system=rf"[|system|]{C}[|endofturn|]\n",
        user=rf"[|user|]{C}\n",
        assistant=rf"[|assistant|]{C}[|endofturn|]\n",
    ),
    "exaone4": _written(
        "[|assistant|]",
        TRIMMED,
        system=rf"[|system|]{C}[|endofturn|]\n",
        user=rf"[|user|]{C}\n",
        assistant=rf"[|assistant|]{C}[|endofturn|]\n",
        tool=rf"[|tool|]{C}[|endofturn|]\n",
    ),
    "falcon3": _uniform("<|", r"|>\n", r"\n", r"<|assistant|>\n"),
    "gemma": _turns(_GEMMA, r"{{ '<start_of_turn>model\n' }}", _HELD),
    "gigachat": _turns(_GIGACHAT, "{{ 'assistant<|role_sep|>' }}", "<s>"),
    "glmedge": _uniform("<|", r"|>\n", "", "<|assistant|>"),
    "gpt-oss": _turns(
        "{{ '<|start|>' + message.role + '<|message|>' + message.content }}"
        "{{ '<|return|>' if message.role == 'assistant' else '<|end|>' }}",
        "{{ '<|start|>assistant' }}",
    ),
    "granite": _turns(
        _GRANITE_CALL + "{{ '<|start_of_role|>' + message.role + '<|end_of_role|>' }}" + _GRANITE_SAID, _GRANITE_ANSWER
    ),
    "granite-4.0": _GRANITE_4,
    "granite-4.1": _GRANITE_4,
    "grok-2": _turns(
        r"{% if message.role == 'system' %}{{ 'System: ' + (message.content|trim) + '<|separator|>\n\n' }}"
        r"{% elif message.role == 'user' %}{{ 'Human: ' + (message.content|trim) + '<|separator|>\n\n' }}"
        r"{% elif message.role == 'assistant' %}{{ 'Assistant: ' + message.content + '<|separator|>\n\n' }}{% endif %}",
        "{{ 'Assistant:' }}",
    ),
    "hunyuan-dense": _turns(_HUNYUAN_DENSE),
    "hunyuan-moe": _written(
        "",
        other=f"<|startoftext|>{C}<|extra_0|>",
        system=f"<|startoftext|>{C}<|extra_4|>",
        assistant=f"{C}<|eos|>",
    ),
    "hunyuan-vl": _turns(_HUNYUAN_VL, before="<｜hy_begin▁of▁sentence｜>"),
    "kimi-k2": _written(
        "<|im_assistant|>assistant<|im_middle|>",
        other=f"{C}<|im_end|>",
        **{
            role: f"<|im_{kind}|>{name}<|im_middle|>{C}<|im_end|>"
            for role, (kind, name) in ((role, both.split("|")) for role, both in _KIMI.items())
        },
    ),
    "llama2": _llama2(r"{{ text + '\n' }}"),
    "llama2-sys": _llama2(SYSTEM),
    "llama2-sys-bos": _llama2(SYSTEM, "<s>[INST] "),
    "llama2-sys-strip": _llama2(SYSTEM, content=TRIMMED),
    "llama3": _uniform(
        "<|start_header_id|>",
        r"<|end_header_id|>\n\n",
        "<|eot_id|>",
        r"<|start_header_id|>assistant<|end_header_id|>\n\n",
        TRIMMED,
    ),
    "llama4": _uniform(
        "<|header_start|>", r"<|header_end|>\n\n", "<|eot|>", r"<|header_start|>assistant<|header_end|>\n\n", TRIMMED
    ),
    "megrez": _uniform("<|role_start|>", "<|role_end|>", "<|turn_end|>", "<|role_start|>assistant<|role_end|>"),
    "minicpm": _written("", TRIMMED, other=C, user=f"<用户>{C}<AI>"),
    "mistral-v1": _mistral(" ", " "),
    "mistral-v3": _mistral("", " ", TRIMMED),
    "mistral-v3-tekken": _mistral("", ""),
    "mistral-v7": _mistral7(" "),
    "mistral-v7-tekken": _mistral7(""),
    "monarch": _turns(
        r"{{ ('' if loop.first else '<s>') + message.role + '\n' + message.content + '</s>\n' }}",
        r"{{ '<s>assistant\n' }}",
    ),
    "openchat": _turns(
        "{% if message.role == 'system' %}{{ message.content + '<|end_of_turn|>' }}{% else %}"
        "{{ 'GPT4 Correct ' + message.role[0]|upper + message.role[1:] + ': ' + message.content + '<|end_of_turn|>' }}"
        "{% endif %}",
        "{{ 'GPT4 Correct Assistant:' }}",
    ),
    "orion": _turns(_ORION, before=_HELD),
    "pangu-embedded": _turns(
        "{% if loop.first and message.role != 'system' %}{{ '[unused9]系统：[unused10]' }}{% endif %}"
        + _by_role(
            {role: f"{{{{ '[unused9]{name}：' + message.content + '[unused10]' }}}}" for role, name in _PANGU.items()}
        ),
        "{{ '[unused9]助手：' }}",
    ),
    "phi3": _uniform("<|", r"|>\n", r"<|end|>\n", r"<|assistant|>\n"),
    "phi4": _uniform("<|im_start|>", "<|im_sep|>", "<|im_end|>", "<|im_start|>assistant<|im_sep|>"),
    "rwkv-world": _turns(_RWKV),
    "seed_oss": _turns(
        r"{{ '<seed:bos>' + message.role + '\n' }}"
        r"{{ (message.content|trim if message.role == 'assistant' else message.content) + '<seed:eos>' }}",
        r"{{ '<seed:bos>assistant\n' }}",
    ),
    "smolvlm": _written(
        "Assistant:",
        before="<|im_start|>",
        other=rf"Assistant: {C}<end_of_utterance>\n",
        system=rf"{C}\n\n",
        user=rf"User: {C}<end_of_utterance>\n",
    ),
    "solar-open": _uniform("<|begin|>", "<|content|>", "<|end|>", "<|begin|>assistant"),
    "vicuna": _written("ASSISTANT:", system=rf"{C}\n\n", user=rf"USER: {C}\n", assistant=rf"ASSISTANT: {C}</s>\n"),
    "vicuna-orca": _written(
        "ASSISTANT:", system=rf"SYSTEM: {C}\n", user=rf"USER: {C}\n", assistant=rf"ASSISTANT: {C}</s>\n"
    ),
    "yandex": _written(" Ассистент:[SEP]", user=rf" Пользователь: {C}\n\n", assistant=rf" Ассистент: {C}\n\n"),
    "zephyr": _uniform("<|", r"|>\n", r"<|endoftext|>\n", r"<|assistant|>\n"),
}


def template_source(template: str) -> str:
    """The Jinja source of a template that is given by its name, or as its source. Raises RequestError for others."""
    if "{{" in template or "{%" in template:
        return template
    if template not in TEMPLATES:
        known = ", ".join(TEMPLATES)
        message = f"chat_template is {template!r}: it must be Jinja ({{{{ or {{% is in it) or one of {known}"
        raise RequestError(message, "chat_template")
    return TEMPLATES[template]
