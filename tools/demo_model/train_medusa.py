#!/usr/bin/env python3
"""Trains Medusa heads of the demo model on its own texts, for `--speculate medusa=FOLDER`.

usage: train_medusa.py MODEL_DIR OUT_DIR [--texts N] [--steps N] [--heads N] [--blocks N] [--own-projection]
The demo model writes texts from random first tokens, greedily and at temperatures up to 1. Head i learns to predict the token i + 2 places behind each position from the
hidden state there. Without --own-projection the heads share the model's projection to the vocabulary (version 2 of the files); with it, each head has one of its own,
which begins as the model's. Runs on a GPU if there is one. Needs PyTorch 1.13 or newer.
"""
import argparse
import json
import math
import pathlib
import time

import torch
import torch.nn.functional as F
from train_draft import Llama, read_safetensors, write_safetensors, write_texts


def head_logits(tensors, embedding, hidden, head, blocks):
    x = hidden
    for block in range(blocks):
        x = x + F.silu(F.linear(x, tensors[f"{head}.{block}.linear.weight"], tensors[f"{head}.{block}.linear.bias"]))
    return F.linear(x, tensors.get(f"{head}.{blocks}.weight", embedding))


@torch.no_grad()
def report(tensors, embedding, states, ids, args):
    """How often the token is the first, or one of the first three or ten, of each head: for greedy texts, then for all."""
    for what, rows in (("greedy", slice(0, None, 4)), ("all", slice(0, None))):
        line = []
        for head in range(args.heads):
            top = head_logits(tensors, embedding, states[rows, 8: -head - 2], head, args.blocks).topk(10).indices
            found = top == ids[rows, 10 + head:, None]
            line.append("/".join(f"{found[..., :count].any(-1).float().mean():.3f}" for count in (1, 3, 10)))
        print(f"{what}: " + "  ".join(line), flush=True)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("model", type=pathlib.Path)
    parser.add_argument("out", type=pathlib.Path)
    parser.add_argument("--texts", type=int, default=4096)
    parser.add_argument("--length", type=int, default=192)
    parser.add_argument("--steps", type=int, default=3000)
    parser.add_argument("--heads", type=int, default=4)
    parser.add_argument("--blocks", type=int, default=1)
    parser.add_argument("--own-projection", action="store_true")
    args = parser.parse_args()
    torch.manual_seed(1)
    torch.set_float32_matmul_precision("high")
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    config = json.loads((args.model / "config.json").read_text())
    model = Llama(config, {name: tensor.to(device) for name, tensor in read_safetensors(args.model / "model.safetensors").items()})
    model.angles = model.angles.to(device)
    start = time.time()
    batch = 512
    starts = torch.randint(1, config["vocab_size"], (args.texts, 1), device=device)
    texts = torch.cat([write_texts(model, starts[first: first + batch], args.length, device) for first in range(0, args.texts, batch)])
    with torch.no_grad():
        states = torch.cat([model.states(texts[first: first + 64]) for first in range(0, len(texts), 64)])
    print(f"{len(texts)} texts {time.time() - start:.0f} s", flush=True)
    held, embedding, hidden = 256, model.tensors["model.embed_tokens.weight"], config["hidden_size"]
    tensors = {}
    for head in range(args.heads):
        for block in range(args.blocks):
            tensors[f"{head}.{block}.linear.weight"] = torch.randn(hidden, hidden, device=device) * 0.01
            tensors[f"{head}.{block}.linear.bias"] = torch.zeros(hidden, device=device)
        if args.own_projection:
            tensors[f"{head}.{args.blocks}.weight"] = embedding.clone()
    for tensor in tensors.values():
        tensor.requires_grad_()
    optimizer = torch.optim.AdamW(tensors.values(), lr=1e-3, betas=(0.9, 0.95), weight_decay=0.01)
    for step in range(args.steps):
        for group in optimizer.param_groups:
            group["lr"] = 2e-3 * min(1, (step + 1) / 50) * (0.03 + 0.97 * 0.5 * (1 + math.cos(math.pi * step / args.steps)))
        chosen = torch.randint(held, len(texts), (64,), device=device)
        loss = sum(F.cross_entropy(head_logits(tensors, embedding, states[chosen, 8: -head - 2], head, args.blocks).flatten(0, 1), texts[chosen, 10 + head:].flatten())
                   for head in range(args.heads)) / args.heads
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        if (step + 1) % 500 == 0 or step + 1 == args.steps:
            print(f"step {step + 1} loss {loss.item():.3f} {time.time() - start:.0f} s", flush=True)
            report(tensors, embedding, states[:held], texts[:held], args)
    args.out.mkdir(parents=True, exist_ok=True)
    write_safetensors(args.out / "medusa_lm_head.safetensors", {name: tensor.cpu() for name, tensor in tensors.items()})
    said = {"medusa_num_heads": args.heads, "medusa_num_layers": args.blocks, "base_model_name_or_path": "demo/model"}
    (args.out / "config.json").write_text(json.dumps(said if args.own_projection else {**said, "version": "2"}, indent=2) + "\n")


if __name__ == "__main__":
    main()
