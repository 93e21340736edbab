"""An answer that is an object: a class in, an instance of it out. The answer cannot have another shape.

    python examples/structured.py
    python examples/structured.py "Dinner with Ada and Grace, Friday at 19:00, at the harbour"

The JSON schema becomes a grammar, and tokens that do not fit are never sampled. Limits keep small models from rambling.
A schema of pydantic (`Event.model_json_schema()`) or one written by hand does as well.
"""

import argparse
from typing import Annotated, Literal

import msgspec

import llamina

Name = Annotated[str, msgspec.Meta(max_length=60)]
Day = Literal["Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday"]


class Event(msgspec.Struct, forbid_unknown_fields=True):
    """What a calendar needs to know."""

    title: Name
    day: Day
    hour: Annotated[int, msgspec.Meta(ge=0, le=23)]
    people: Annotated[list[Name], msgspec.Meta(max_length=5)]
    place: Name | None


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("text", nargs="?", default="Chess with Magnus and Judit in the library, Sunday at 15:00")
    parser.add_argument("--model", default="qwen2.5-coder-0.5b", help="a GGUF file, or a name of `llamina list --all`")
    args = parser.parse_args()

    with llamina.load(args.model) as engine:
        prompt = f"Write this down as a JSON object with title, day, hour, people and place:\n{args.text}"
        answer = engine.chat(prompt, json_schema=msgspec.json.schema(Event), temperature=0, max_tokens=400)
        event = msgspec.json.decode(answer.text, type=Event)
        print(answer.text)
        print(event)
        print(f"{event.day}, {event.hour}:00, with {len(event.people)} guests")


if __name__ == "__main__":
    main()
