#!/usr/bin/env python3
"""Trains the demo model, a Llama-architecture decoder of 12 M parameters, and exports it in Hugging Face layout.

usage: train.py DATA_DIR OUT_DIR [--epochs E] [--dropout D] [--weight-decay W]
DATA_DIR holds what train_tokenizer.py wrote; OUT_DIR receives config.json, generation_config.json, model.safetensors (bf16), the
tokenizer, log.txt and samples.txt. Needs PyTorch with a CUDA device, and safetensors. The weights with the lowest validation loss are kept.
"""
import argparse
import json
import math
import pathlib
import shutil
import time

import numpy as np
import torch
import torch.nn.functional as F
from safetensors.torch import save_file
from torch import nn

VOCAB, HIDDEN, LAYERS, HEADS, KV_HEADS, HEAD_DIM, FFN, CONTEXT, THETA, EPS = 4096, 384, 7, 6, 2, 64, 960, 1024, 10000.0, 1e-5
BATCH, PEAK_LR, WARMUP = 128, 3e-3, 200
PROMPTS = ["Once upon a time there was a little girl who", "The old fisherman looked at the sea and said,",
           "In a deep forest there lived a bear", "The king called his three sons to him and"]


class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.q_proj = nn.Linear(HIDDEN, HEADS * HEAD_DIM, bias=False)
        self.k_proj = nn.Linear(HIDDEN, KV_HEADS * HEAD_DIM, bias=False)
        self.v_proj = nn.Linear(HIDDEN, KV_HEADS * HEAD_DIM, bias=False)
        self.o_proj = nn.Linear(HEADS * HEAD_DIM, HIDDEN, bias=False)

    def forward(self, x, cos, sin):
        batch, length, _ = x.shape
        q = rotate(self.q_proj(x).view(batch, length, HEADS, HEAD_DIM).transpose(1, 2), cos, sin)
        k = rotate(self.k_proj(x).view(batch, length, KV_HEADS, HEAD_DIM).transpose(1, 2), cos, sin)
        v = self.v_proj(x).view(batch, length, KV_HEADS, HEAD_DIM).transpose(1, 2)
        out = F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)
        return self.o_proj(out.transpose(1, 2).reshape(batch, length, HEADS * HEAD_DIM))


class Mlp(nn.Module):
    def __init__(self):
        super().__init__()
        self.gate_proj = nn.Linear(HIDDEN, FFN, bias=False)
        self.up_proj = nn.Linear(HIDDEN, FFN, bias=False)
        self.down_proj = nn.Linear(FFN, HIDDEN, bias=False)

    def forward(self, x):
        return self.down_proj(F.silu(self.gate_proj(x)) * self.up_proj(x))


class Layer(nn.Module):
    def __init__(self, dropout):
        super().__init__()
        self.input_layernorm = nn.RMSNorm(HIDDEN, eps=EPS)
        self.self_attn = Attention()
        self.post_attention_layernorm = nn.RMSNorm(HIDDEN, eps=EPS)
        self.mlp = Mlp()
        self.dropout = nn.Dropout(dropout)

    def forward(self, x, cos, sin):
        x = x + self.dropout(self.self_attn(self.input_layernorm(x), cos, sin))
        return x + self.dropout(self.mlp(self.post_attention_layernorm(x)))


class Model(nn.Module):
    """Parameter names are those of a Hugging Face Llama checkpoint below `model.`; the embedding is tied to the output."""

    def __init__(self, dropout):
        super().__init__()
        self.embed_tokens = nn.Embedding(VOCAB, HIDDEN)
        self.layers = nn.ModuleList(Layer(dropout) for _ in range(LAYERS))
        self.norm = nn.RMSNorm(HIDDEN, eps=EPS)
        for name, p in self.named_parameters():
            if p.dim() == 2:
                nn.init.normal_(p, std=0.02 / (math.sqrt(2 * LAYERS) if name.endswith(("o_proj.weight", "down_proj.weight")) else 1))
        angles = torch.outer(torch.arange(CONTEXT).float(), THETA ** (-torch.arange(0, HEAD_DIM, 2).float() / HEAD_DIM))
        angles = torch.cat((angles, angles), dim=-1)
        self.register_buffer("cos", angles.cos(), persistent=False)
        self.register_buffer("sin", angles.sin(), persistent=False)

    def forward(self, ids):
        x = self.embed_tokens(ids)
        cos, sin = self.cos[: ids.shape[1]].to(x.dtype), self.sin[: ids.shape[1]].to(x.dtype)
        for layer in self.layers:
            x = layer(x, cos, sin)
        return F.linear(self.norm(x), self.embed_tokens.weight)


def rotate(x, cos, sin):
    half = x.shape[-1] // 2
    return x * cos + torch.cat((-x[..., half:], x[..., :half]), dim=-1) * sin


def batches(ids, generator):
    """Random windows of the token stream, without end."""
    offsets = torch.arange(CONTEXT + 1, device=ids.device)
    while True:
        starts = torch.randint(len(ids) - CONTEXT - 1, (BATCH, 1), generator=generator, device=ids.device)
        window = ids[starts + offsets].long()
        yield window[:, :-1], window[:, 1:]


@torch.no_grad()
def validation_loss(model, ids):
    """Mean loss over all whole windows of the validation stream."""
    model.eval()
    count = (len(ids) - 1) // CONTEXT
    total = 0.0
    for first in range(0, count, 32):
        rows = range(first, min(first + 32, count))
        x = torch.stack([ids[r * CONTEXT: (r + 1) * CONTEXT] for r in rows]).long()
        y = torch.stack([ids[r * CONTEXT + 1: (r + 1) * CONTEXT + 1] for r in rows]).long()
        with torch.autocast("cuda", torch.bfloat16):
            total += F.cross_entropy(model(x).float().view(-1, VOCAB), y.view(-1)).item() * len(rows)
    model.train()
    return total / count


def fit(data, epochs, dropout, weight_decay, log):
    device = "cuda"
    train_ids = torch.from_numpy(np.fromfile(data / "train.bin", np.uint16).astype(np.int32)).to(device)
    valid_ids = torch.from_numpy(np.fromfile(data / "valid.bin", np.uint16).astype(np.int32)).to(device)
    torch.manual_seed(1)
    model = Model(dropout).to(device)
    log(f"parameters {sum(p.numel() for p in model.parameters())}, train tokens {len(train_ids)}, valid tokens {len(valid_ids)}")
    decay = [p for p in model.parameters() if p.dim() == 2]
    rest = [p for p in model.parameters() if p.dim() != 2]
    optimizer = torch.optim.AdamW([{"params": decay, "weight_decay": weight_decay}, {"params": rest, "weight_decay": 0.0}],
                                  lr=PEAK_LR, betas=(0.9, 0.95), fused=True)
    compiled = torch.compile(model)
    stream = batches(train_ids, torch.Generator(device).manual_seed(1))
    best, best_loss, start = None, float("inf"), time.time()
    steps = round(epochs * len(train_ids) / (BATCH * CONTEXT))
    for step in range(steps):
        x, y = next(stream)
        progress = step / steps
        rate = PEAK_LR * min(1, (step + 1) / WARMUP) * (0.02 + 0.98 * 0.5 * (1 + math.cos(math.pi * progress)))
        for group in optimizer.param_groups:
            group["lr"] = rate
        with torch.autocast("cuda", torch.bfloat16):
            loss = F.cross_entropy(compiled(x).float().view(-1, VOCAB), y.reshape(-1))
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        if (step + 1) % 250 == 0:
            valid = validation_loss(model, valid_ids)
            log(f"step {step + 1} epoch {(step + 1) * BATCH * CONTEXT / len(train_ids):.1f} lr {rate:.2e} train {loss.item():.4f} valid {valid:.4f}")
            if valid < best_loss:
                best_loss, best = valid, {k: v.detach().clone() for k, v in model.state_dict().items()}
    valid = validation_loss(model, valid_ids)
    log(f"end: {steps} steps in {time.time() - start:.0f} s, valid {valid:.4f}, best {min(best_loss, valid):.4f}")
    if best is not None and best_loss < valid:
        model.load_state_dict(best)
    return model


def export(model, data, out):
    tensors = {f"model.{name}": p.detach().to(torch.bfloat16).contiguous().cpu() for name, p in model.named_parameters()}
    save_file(tensors, str(out / "model.safetensors"), metadata={"format": "pt"})
    config = {"architectures": ["LlamaForCausalLM"], "model_type": "llama", "vocab_size": VOCAB, "hidden_size": HIDDEN,
              "intermediate_size": FFN, "num_hidden_layers": LAYERS, "num_attention_heads": HEADS, "num_key_value_heads": KV_HEADS,
              "head_dim": HEAD_DIM, "max_position_embeddings": CONTEXT, "rms_norm_eps": EPS, "rope_theta": THETA, "hidden_act": "silu",
              "attention_bias": False, "mlp_bias": False, "tie_word_embeddings": True, "torch_dtype": "bfloat16",
              "bos_token_id": None, "eos_token_id": 0, "pad_token_id": 0}
    (out / "config.json").write_text(json.dumps(config, indent=2) + "\n")
    (out / "generation_config.json").write_text(json.dumps({"eos_token_id": 0, "pad_token_id": 0}, indent=2) + "\n")
    for name in ("tokenizer.json", "tokenizer_config.json"):
        shutil.copy(data / name, out / name)


@torch.no_grad()
def sample(model, tokenizer, prompt, temperature=0.8, top_p=0.95, length=220):
    model.eval()
    ids = tokenizer.encode(prompt).ids
    for _ in range(length):
        logits = model(torch.tensor([ids[-CONTEXT:]], device="cuda"))[0, -1].float() / temperature
        values, order = logits.softmax(-1).sort(descending=True)
        values[values.cumsum(-1) - values > top_p] = 0
        token = order[torch.multinomial(values, 1)].item()
        if token == 0:
            break
        ids.append(token)
    return tokenizer.decode(ids)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("data", type=pathlib.Path)
    parser.add_argument("out", type=pathlib.Path)
    parser.add_argument("--epochs", type=float, default=40)
    parser.add_argument("--dropout", type=float, default=0.2)
    parser.add_argument("--weight-decay", type=float, default=0.2)
    args = parser.parse_args()
    args.out.mkdir(parents=True, exist_ok=True)
    torch.set_float32_matmul_precision("high")
    with open(args.out / "log.txt", "w") as file:
        def log(line):
            print(line, flush=True)
            print(line, file=file, flush=True)
        model = fit(args.data, args.epochs, args.dropout, args.weight_decay, log)
    export(model, args.data, args.out)
    from tokenizers import Tokenizer
    tokenizer = Tokenizer.from_file(str(args.out / "tokenizer.json"))
    torch.manual_seed(7)
    text = "\n\n----\n\n".join(sample(model.float(), tokenizer, prompt) for prompt in PROMPTS)
    (args.out / "samples.txt").write_text(text + "\n")
    print(text)


if __name__ == "__main__":
    main()
