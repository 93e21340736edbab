"""GGUF files as files: hashes, checks, differences, edited metadata, shards, merged adapters."""

from llamina.files.compare import Difference, TensorError, compare
from llamina.files.edit import edit
from llamina.files.export import Exported, export_lora
from llamina.files.hashes import HASHES, Hash, hash_file
from llamina.files.split import Shard, merge, plan_split, split
from llamina.files.verify import Report, verify, write_hashes

__all__ = [
    "HASHES",
    "Difference",
    "Exported",
    "Hash",
    "Report",
    "Shard",
    "TensorError",
    "compare",
    "edit",
    "export_lora",
    "hash_file",
    "merge",
    "plan_split",
    "split",
    "verify",
    "write_hashes",
]
