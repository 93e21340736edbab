"""The frame that every sound encoder shares: stretches of a spectrogram, and a projection to the text model's width."""

from abc import abstractmethod
from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from llamina.errors import UnsupportedModel
from llamina.media import Encoder as Frame
from llamina.models import Weights
from llamina.ops import Value, Weight, activate, linear
from llamina.quant import decode
from llamina.sound.mel import Mel
from llamina.sound.sound import Sound

Part = str | Mel  # text of the prompt, or a stretch


class Encoder(Frame[Sound]):
    """The part of an mmproj file that hears."""

    kind = "audio"
    activation = "gelu_erf"
    before, after = "", ""  # texts around a sound

    def __init__(self, metadata: Mapping[str, Any], weights: Weights) -> None:
        super().__init__(metadata)
        self.weights, self.a, self.mm = weights, weights.part("a"), weights.part("mm.a")
        self.mels = self.config.count("num_mel_bins")
        self.setup()

    def parts(self, medium: Sound) -> list[Part]:
        parts: list[Part] = [self.before, *self.stretches(medium), self.after]
        return [part for part in parts if not isinstance(part, str) or part]

    @abstractmethod
    def stretches(self, sound: Sound) -> list[Mel]:
        """What the encoder takes at a time."""

    @abstractmethod
    def project(self, x: Value) -> Value:
        """A row of the text model, from those that become one."""

    def transformed(self, x: Value) -> Value:
        """What the layers make of rows."""
        for layer in range(self.layers):
            x = self.block(x, self.a.part(f"blk.{layer}"), layer)
        return x

    def normed(self, x: Value) -> Value:
        after = self.a.get("post_ln")
        return self.norm(x, after) if after else x

    def two_layers(self, x: Value) -> Value:
        """The MLP that several families end with."""
        mlp = self.mm.part("mlp")
        return linear(activate(linear(x, getattr(mlp, "1")), "gelu_erf"), getattr(mlp, "2"))

    def tensor(self, name: str, *shape: int) -> npt.NDArray[np.float32]:
        """A tensor's numbers. Raises UnsupportedModel if it is not there, or of another size."""
        found = self._found(name)
        if [n for n in found.shape if n > 1] != [n for n in shape if n > 1]:
            raise UnsupportedModel(f"{name} is {list(found.shape)}: {list(shape)} is expected")
        return decode(found.data, found.format, found.shape).reshape(shape)

    def _found(self, name: str) -> Weight:
        if (found := self.weights.get(name)) is None:
            raise UnsupportedModel(f"the file has no tensor {name}: it is incomplete, or of another family")
        return found

    def tensor_size(self, name: str) -> int:
        """How many numbers a tensor has. Raises UnsupportedModel if it is not there."""
        return self._found(name).size

    def check_positions(self, least: int) -> None:
        """Raise UnsupportedModel if there are fewer learned positions."""
        if (there := self.a.position_embd.shape[0]) < least:
            raise UnsupportedModel(f"a.position_embd has {there} positions: {least} are expected")
