"""Make adapter_logits.npz: what PEFT computes with the adapters of adapter_folders.py. Needs torch and peft."""

import tempfile
from pathlib import Path

import adapter_folders
import convert_folders
import numpy as np
import torch
import transformers as hf
from peft import PeftModel

NAMES = ("llama", "llama-biases", "qwen2", "gemma3", "phi3", "falcon-new", "gpt2", "gptneox", "bloom", "granite")


def main() -> None:
    truth = {}
    for name in NAMES:
        with tempfile.TemporaryDirectory() as top, torch.no_grad():
            base, lora = Path(top) / "base", Path(top) / "lora"
            convert_folders.folder(base, name)
            adapter_folders.adapter(lora, name)
            plain = hf.AutoModelForCausalLM.from_pretrained(base, dtype=torch.float32, attn_implementation="eager")
            tokens = torch.tensor([convert_folders.TOKENS])
            before = plain.eval()(tokens).logits[0].numpy()
            truth[name] = PeftModel.from_pretrained(plain, lora).eval()(tokens).logits[0].numpy()
        print(f"{name:14} {before.std():8.3f} {np.abs(truth[name] - before).max():8.3f}")
    np.savez_compressed(convert_folders.HERE / "adapter_logits.npz", **truth)


if __name__ == "__main__":
    main()
