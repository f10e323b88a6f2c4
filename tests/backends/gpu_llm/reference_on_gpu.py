#!/usr/bin/env python3
"""Writes the outputs of `transformers` on a GPU, the reference of like_transformers_test.cc.

usage: reference_on_gpu.py OUT [TINY_DIR]

Writes OUT/NAME/reference.json and logits.f32 for each checkpoint of TINY_DIR that transformers reads, except quantized ones, which need further
packages, and for `1b`, a Llama of 16 layers of 2048 with random weights, which is created in OUT/1b/checkpoint. The outputs are computed in float32
from bf16 weights. A second run in bf16 measures the error of bf16. The standard output names the skipped checkpoints and the reasons.
"""
import json
import pathlib
import sys

import torch
import transformers

NUM_GREEDY = 16
NUM_ROWS = 24  # of logits for each prompt
LENGTHS = (1, 31, 33, 200)


def make_1b(folder):
    torch.manual_seed(1)
    config = transformers.LlamaConfig(vocab_size=128256, hidden_size=2048, intermediate_size=8192, num_hidden_layers=16, num_attention_heads=32,
                                      num_key_value_heads=8, max_position_embeddings=4096, rms_norm_eps=1e-5, tie_word_embeddings=False,
                                      bos_token_id=1, eos_token_id=2)
    with torch.device("cuda"):
        model = transformers.AutoModelForCausalLM.from_config(config, dtype=torch.bfloat16)
    for parameter in model.parameters():
        if parameter.dim() < 2:
            parameter.copy_(1.0 + 0.1 * torch.randn_like(parameter))
        else:
            parameter.copy_(torch.randn_like(parameter) / parameter.shape[-1] ** 0.5)
    model.save_pretrained(folder)


def load(folder, dtype):
    # Weights are rounded to bf16 first, as in gpu_llm, so that only the computation differs.
    model = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.bfloat16, attn_implementation="eager")
    return model.to("cuda").to(dtype).eval()


def logits_of(model, ids):
    return model(torch.tensor([ids], device="cuda"), use_cache=False).logits[0].float()


def answers(model, vocab, limit):
    draws = torch.Generator().manual_seed(7)
    for length in (n for n in LENGTHS if n + NUM_GREEDY < limit):
        ids = torch.randint(3, vocab, (length,), generator=draws).tolist()
        rows = logits_of(model, ids)[-min(length, NUM_ROWS):]
        known, greedy, leads = list(ids), [], []
        for _ in range(NUM_GREEDY):
            last = logits_of(model, known)[-1]
            best = last.topk(2).values
            greedy.append(int(last.argmax()))
            leads.append(float((best[0] - best[1]) / last.std()))
            known.append(greedy[-1])
        yield {"ids": ids, "greedy": greedy, "leads": leads, "num_rows": len(rows)}, rows


def write(name, checkpoint, out):
    config = transformers.AutoConfig.from_pretrained(checkpoint)
    limit = getattr(config, "max_position_embeddings", None) or config.n_positions
    folder = out / name
    folder.mkdir(parents=True, exist_ok=True)
    model = load(checkpoint, torch.float32)
    prompts, rows = zip(*answers(model, config.vocab_size, limit))
    del model
    model = load(checkpoint, torch.bfloat16)
    with open(folder / "logits.f32", "wb") as file:
        for prompt, expected in zip(prompts, rows):
            got = logits_of(model, prompt["ids"])[-len(expected):]
            prompt["bf16_error"] = float((got - expected).norm() / expected.norm())
            file.write(expected.cpu().numpy().tobytes())
    has_experts = any(getattr(config, key, None) for key in ("num_local_experts", "num_experts"))
    (folder / "reference.json").write_text(json.dumps({"checkpoint": str(checkpoint), "vocab_size": rows[0].shape[-1], "has_experts": has_experts,
                                                       "prompts": prompts}))
    print(f"{name}: bf16 differs by {max(prompt['bf16_error'] for prompt in prompts):.4f}")


def main():
    torch.set_grad_enabled(False)
    torch.backends.cuda.matmul.allow_tf32 = False
    out = pathlib.Path(sys.argv[1])
    for checkpoint in sorted(pathlib.Path(sys.argv[2]).iterdir()) if len(sys.argv) > 2 else []:
        if not (checkpoint / "config.json").exists() or not list(checkpoint.glob("*.safetensors")):
            continue
        if "quantization_config" in json.loads((checkpoint / "config.json").read_text()):
            print(f"{checkpoint.name}: skipped, its weights are quantized")
            continue
        try:
            write(checkpoint.name, checkpoint, out)
        except (ImportError, KeyError, ValueError) as error:
            print(f"{checkpoint.name}: skipped, {error}")
    checkpoint = out / "1b" / "checkpoint"
    make_1b(checkpoint)
    write("1b", checkpoint, out)


if __name__ == "__main__":
    main()
