"""What a model was created with: the instructions of a Modelfile, beside its profile."""

from typing import Any

import msgspec

from llamina.sampling import Sampling
from llamina.server.models import Entry
from llamina.server.ollama.conversation import Message
from llamina.server.ollama.options import Options, read_options

SCALARS = Sampling.__dataclass_fields__.keys()


class Modelfile(msgspec.Struct, frozen=True):
    """Defaults of a created model. Parameters have Ollama's names."""

    parent: str = ""
    parameters: dict[str, Any] = {}
    system: str = ""
    template: str = ""
    messages: list[Message] = []
    license: str = ""

    def options(self, given: dict[str, Any] | None) -> Options:
        """A request's options over the model's. Raises ApiError."""
        read_options(given)  # so that what is wrong with the request is told as the request's
        return read_options({**self.parameters, **(given or {})})

    def text(self, name: str) -> str:
        """As a Modelfile is written."""
        lines = [f"FROM {name}"]
        lines += [f'TEMPLATE """{self.template}"""'] if self.template else []
        lines += [f'SYSTEM """{self.system}"""'] if self.system else []
        lines += [f"PARAMETER {key} {value}" for key, value in self.pairs()]
        lines += [f"MESSAGE {message.role} {message.content or ''}" for message in self.messages]
        lines += [f'LICENSE """{self.license}"""'] if self.license else []
        return "\n".join(lines) + "\n"

    def pairs(self) -> list[tuple[str, str]]:
        """Parameters as they are written, one line for each stop string."""
        return [
            (key, msgspec.json.encode(item).decode())
            for key, value in self.parameters.items()
            for item in (value if isinstance(value, list) else [value])
        ]

    def sampling(self) -> dict[str, Any]:
        """Its sampling parameters under the engine's names, for a profile."""
        given = read_options(self.parameters, "parameters").engine_options()
        return {name: value for name, value in given.items() if name in SCALARS}


def modelfile_of(entry: Entry) -> Modelfile:
    """What an entry was created with; nothing for a model that was configured."""
    return entry.modelfile if isinstance(entry.modelfile, Modelfile) else Modelfile()
