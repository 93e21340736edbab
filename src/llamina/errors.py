"""The exception tree. A message states the fact, the value, and the way out.

LlaminaError
├── ModelFileError          the file is damaged, truncated or not GGUF
├── UnsupportedModel        the file is fine, but asks for something we do not have
│   └── MissingTensor       the architecture asks for a tensor that the file does not have
├── ModelNotFound           no file, pulled model or repository of that name
├── DownloadError           a transfer broke or its checksum is wrong
├── RequestError            the caller asked for something impossible (`param` names the argument)
│   ├── ContextTooLong      the prompt does not fit the context
│   ├── InvalidSampling     a sampling parameter is out of range
│   ├── InvalidGrammar      a grammar, schema or expression cannot be followed
│   ├── InvalidPicture      a picture is damaged, of an unknown format, or larger than may be
│   ├── InvalidSound        a sound is damaged, of an unknown format, or longer than may be
│   └── TemplateError       the chat template failed or refused the messages
├── SnapshotError           the snapshot is damaged, or of another version or model
├── CapacityError           no pages, slots or memory left
│   └── QueueFull           more requests wait than may
├── RecordingError          a model file did something that cannot be recorded
└── KernelError             a backend cannot compile or run a step
"""


class LlaminaError(Exception):
    """Anything llamina raises on purpose."""


class ModelFileError(LlaminaError):
    """The file is damaged, truncated or not GGUF."""


class UnsupportedModel(LlaminaError):
    """The file is fine, but asks for something we do not have."""


class MissingTensor(UnsupportedModel):
    """The architecture asks for a tensor, named `tensor`, that the file does not have."""

    def __init__(self, tensor: str) -> None:
        super().__init__(f"the file has no tensor {tensor}: it is incomplete, or of a variant not known here")
        self.tensor = tensor


class ModelNotFound(LlaminaError):
    """No file, pulled model or repository of that name."""


class DownloadError(LlaminaError):
    """A transfer broke or its checksum is wrong."""


class RequestError(LlaminaError, ValueError):
    """The caller asked for something impossible; `param` names the argument."""

    def __init__(self, message: str, param: str | None = None) -> None:
        super().__init__(message)
        self.param = param


class ContextTooLong(RequestError):
    """The prompt does not fit the context."""


class InvalidSampling(RequestError):
    """A sampling parameter is out of range."""


class InvalidGrammar(RequestError):
    """A grammar, JSON schema or regular expression cannot be followed."""


class InvalidPicture(RequestError):
    """A picture is damaged, of an unknown format, or larger than may be."""


class InvalidSound(RequestError):
    """A sound is damaged, of an unknown format, or longer than may be."""


class TemplateError(RequestError):
    """The chat template failed or refused the messages."""


class SnapshotError(LlaminaError):
    """The snapshot is damaged, or of another version or model."""


class CapacityError(LlaminaError):
    """No pages, slots or memory left."""


class QueueFull(CapacityError):
    """As many requests wait as may: ask again later."""


class RecordingError(LlaminaError):
    """A model file did something that cannot be recorded."""


class KernelError(LlaminaError):
    """A backend cannot compile or run a step."""


def check_whole(
    name: str, value: object, least: int | None = None, most: int | None = None, *, optional: bool = False
) -> None:
    """Raise RequestError unless an argument is a whole number from `least` to `most`, or None if it is `optional`."""
    if optional and value is None:
        return
    whole = isinstance(value, int) and not isinstance(value, bool)
    if not whole or (least is not None and value < least) or (most is not None and value > most):  # type: ignore[operator]
        limit = "" if least is None else f" of at least {least}" if most is None else f" from {least} to {most}"
        raise RequestError(f"{name} is {value!r}: it must be a whole number{limit}", name)
