"""Encoders by the class of their model in transformers."""

from llamina.convert.encoders import pictures, sounds
from llamina.convert.encoders.source import Encoder, Source
from llamina.errors import UnsupportedModel

_OMNI = (pictures.OMNI, sounds.OMNI)
ENCODERS: dict[str, tuple[Encoder, ...]] = {
    **{name: (encoder,) for name, encoder in (pictures.ENCODERS | sounds.ENCODERS).items()},
    "Qwen2_5OmniModel": _OMNI,
    "Qwen2_5OmniForConditionalGeneration": _OMNI,
    "Qwen2_5OmniThinkerForConditionalGeneration": _OMNI,
}
_OWN_CODE = (
    "the code of this class is not in transformers; llama.cpp's converter makes an mmproj file that llamina reads"
)
# Classes that a folder may well have, and why there is no mmproj file of them.
LEFT_OUT = {
    "Gemma3nForConditionalGeneration": "its encoders (MobileNet v5, a Conformer) are not known here",
    "Gemma4ForConditionalGeneration": "its encoders are not converted here; llama.cpp's converter makes an mmproj file",
    "Phi4MultimodalForCausalLM": "its encoders are not those of Phi-4 with vision, and GGUF has no names for them",
    "MiniCPMV4_6ForConditionalGeneration": "its projector is not that of MiniCPM-V 2.5 to 4.5, and not known here",
    "CogVLMForCausalLM": _OWN_CODE,
    "KimiVLForConditionalGeneration": _OWN_CODE,
    "MiniCPMV": _OWN_CODE,
    "MobileLlamaForCausalLM": _OWN_CODE,
    "Phi4ForCausalLMV": _OWN_CODE,
    "UltravoxModel": _OWN_CODE,
}


def encoders_of(source: Source) -> tuple[Encoder, ...]:
    """The encoders of a folder. Raises UnsupportedModel for those that are not known here, and says why."""
    classes = source.text.classes
    if (why := next((LEFT_OUT[name] for name in classes if name in LEFT_OUT), None)) is not None:
        raise UnsupportedModel(f"config.json names {', '.join(classes)}: {why}")
    if not source.said("vision") and not source.said("audio"):
        raise UnsupportedModel("config.json has no vision_config and no audio_config: the model has no encoder")
    found = next((ENCODERS[name] for name in classes if name in ENCODERS), None)
    if found is None:
        raise UnsupportedModel(
            f"config.json names {', '.join(classes)}, whose encoder is not known here: {', '.join(ENCODERS)} are"
        )
    return (pictures.tower(source),) if found == (pictures.LLAVA,) else found
