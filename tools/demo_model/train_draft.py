#!/usr/bin/env python3
"""Trains the draft model of the demo model on the CPU: a Llama of 2 layers and hidden size 128, for `--speculate draft=demo/draft`.

usage: train_draft.py MODEL_DIR DATA_DIR OUT_DIR [--texts N] [--steps N]
MODEL_DIR is the demo model; DATA_DIR holds train.bin, which train_tokenizer.py wrote. The demo model first continues pieces of the training
text, greedily and at temperatures up to 1, and keeps its most likely tokens. The draft model is then trained on the training text, and
after that on those texts, towards the demo model's probabilities. Needs PyTorch 1.13 or newer.
"""
import argparse
import json
import math
import pathlib
import time

import numpy as np
import torch
import torch.nn.functional as F

EPS, THETA, CONTEXT = 1e-5, 10000.0, 1024
KEPT = 8  # likely tokens whose probabilities the draft model learns
SHAPE = {"hidden_size": 128, "num_hidden_layers": 2, "num_attention_heads": 2, "num_key_value_heads": 1, "head_dim": 64,
         "intermediate_size": 320}


def read_safetensors(path):
    data = path.read_bytes()
    size = int.from_bytes(data[:8], "little")
    tensors = {}
    for name, entry in json.loads(data[8: 8 + size]).items():
        if name == "__metadata__":
            continue
        first, last = (8 + size + offset for offset in entry["data_offsets"])
        bits = np.frombuffer(data[first:last], np.uint16).astype(np.uint32) << 16
        tensors[name] = torch.from_numpy(bits.view(np.float32).reshape(entry["shape"]).copy())
    return tensors


def write_safetensors(path, tensors):
    header, blobs, offset = {"__metadata__": {"format": "pt"}}, [], 0
    for name, tensor in sorted(tensors.items()):
        blob = tensor.detach().to(torch.bfloat16).contiguous().view(torch.int16).numpy().tobytes()
        header[name] = {"dtype": "BF16", "shape": list(tensor.shape), "data_offsets": [offset, offset + len(blob)]}
        blobs.append(blob)
        offset += len(blob)
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    path.write_bytes(len(text).to_bytes(8, "little") + text + b"".join(blobs))


class Llama:
    """A Llama with tied embedding, as a function of its tensors by their names in a checkpoint."""

    def __init__(self, config, tensors):
        self.config, self.tensors = config, tensors
        dim = config["head_dim"]
        angles = torch.outer(torch.arange(CONTEXT).float(), THETA ** (-torch.arange(0, dim, 2).float() / dim))
        self.angles = torch.cat((angles, angles), dim=-1)

    def norm(self, x, name):
        return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + EPS) * self.tensors[name]

    def rotate(self, x, first):
        angles = self.angles[first: first + x.shape[-2]]
        low, high = x.chunk(2, dim=-1)
        return x * angles.cos() + torch.cat((-high, low), dim=-1) * angles.sin()

    def states(self, ids, cache=None):
        """Returns the hidden states behind the final norm [batch, length, hidden size]. `cache`: a list of keys and values for each layer, which is extended."""
        c, t = self.config, self.tensors
        batch, length = ids.shape
        x = F.embedding(ids, t["model.embed_tokens.weight"])
        for layer in range(c["num_hidden_layers"]):
            p = f"model.layers.{layer}."
            normed = self.norm(x, p + "input_layernorm.weight")
            past = 0 if cache is None or len(cache) <= layer else cache[layer][0].shape[2]

            heads = {"q": c["num_attention_heads"], "k": c["num_key_value_heads"], "v": c["num_key_value_heads"]}
            q, k, v = (F.linear(normed, t[f"{p}self_attn.{name}_proj.weight"]).view(batch, length, count, c["head_dim"]).transpose(1, 2)
                       for name, count in heads.items())
            q, k = self.rotate(q, past), self.rotate(k, past)
            if cache is not None:
                if past:
                    k, v = torch.cat((cache[layer][0], k), 2), torch.cat((cache[layer][1], v), 2)
                    cache[layer] = (k, v)
                else:
                    cache.append((k, v))
            group = c["num_attention_heads"] // c["num_key_value_heads"]
            k, v = k.repeat_interleave(group, 1), v.repeat_interleave(group, 1)
            scores = q @ k.transpose(2, 3) / math.sqrt(c["head_dim"])
            if length > 1:
                scores = scores + torch.full((length, k.shape[2]), float("-inf"), device=x.device).triu(1 + past)
            x = x + F.linear((scores.softmax(-1) @ v).transpose(1, 2).reshape(batch, length, -1), t[p + "self_attn.o_proj.weight"])
            normed = self.norm(x, p + "post_attention_layernorm.weight")
            gate = F.silu(F.linear(normed, t[p + "mlp.gate_proj.weight"])) * F.linear(normed, t[p + "mlp.up_proj.weight"])
            x = x + F.linear(gate, t[p + "mlp.down_proj.weight"])
        return self.norm(x, "model.norm.weight")

    def __call__(self, ids, cache=None):
        """Returns the logits [batch, length, vocabulary]."""
        return F.linear(self.states(ids, cache), self.tensors["model.embed_tokens.weight"])


@torch.no_grad()
def continue_texts(model, starts, length, generator):
    """Returns tokens [batch, prompt + length] and, for the continued part, the KEPT likeliest tokens and their probabilities."""
    temperatures = torch.tensor([0.0, 0.0, 0.6, 1.0]).repeat(len(starts) // 4 + 1)[: len(starts), None]
    cache, ids, likely, probabilities = [], starts, [], []
    new = starts
    for _ in range(length):
        logits = model(new, cache)[:, -1]
        top = logits.softmax(-1).topk(KEPT)
        likely.append(top.indices)
        probabilities.append(top.values)
        uniform = torch.rand(logits.shape, generator=generator).clamp(1e-9, 1 - 1e-7)
        new = (logits - temperatures * torch.log(-torch.log(uniform))).argmax(-1, keepdim=True)
        ids = torch.cat((ids, new), 1)
    return ids, torch.stack(likely, 1), torch.stack(probabilities, 1)


def first_tensors(model):
    """The draft model before training: the demo model's embedding projected to fewer dimensions, the rest at random."""
    hidden, inner = SHAPE["hidden_size"], SHAPE["intermediate_size"]
    embedding = model.tensors["model.embed_tokens.weight"]
    basis = torch.linalg.svd(embedding, full_matrices=False).Vh[:hidden]
    tensors = {"model.embed_tokens.weight": embedding @ basis.T, "model.norm.weight": torch.ones(hidden)}
    q, kv = SHAPE["num_attention_heads"] * SHAPE["head_dim"], SHAPE["num_key_value_heads"] * SHAPE["head_dim"]
    for layer in range(SHAPE["num_hidden_layers"]):
        p = f"model.layers.{layer}."
        for name, shape in (("self_attn.q_proj", (q, hidden)), ("self_attn.k_proj", (kv, hidden)), ("self_attn.v_proj", (kv, hidden)),
                            ("self_attn.o_proj", (hidden, q)), ("mlp.gate_proj", (inner, hidden)), ("mlp.up_proj", (inner, hidden)),
                            ("mlp.down_proj", (hidden, inner))):
            tensors[f"{p}{name}.weight"] = torch.randn(shape) * 0.05
        for name in ("input_layernorm", "post_attention_layernorm"):
            tensors[f"{p}{name}.weight"] = torch.ones(hidden)
    return {name: tensor.requires_grad_() for name, tensor in tensors.items()}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("model", type=pathlib.Path)
    parser.add_argument("data", type=pathlib.Path)
    parser.add_argument("out", type=pathlib.Path)
    parser.add_argument("--texts", type=int, default=1024)
    parser.add_argument("--steps", type=int, default=600)
    args = parser.parse_args()
    torch.manual_seed(1)
    generator = torch.Generator().manual_seed(1)
    config = json.loads((args.model / "config.json").read_text())
    model = Llama(config, read_safetensors(args.model / "model.safetensors"))
    train = torch.from_numpy(np.fromfile(args.data / "train.bin", np.uint16).astype(np.int64))
    start = time.time()

    prompt, length, batch = 16, 112, 64
    texts = []
    for number in range(args.texts // batch):
        starts = torch.randint(len(train) - prompt, (batch, 1), generator=generator) + torch.arange(prompt)
        texts.append(continue_texts(model, train[starts], length, generator))
        print(f"text {(number + 1) * batch} {time.time() - start:.0f} s", flush=True)
    ids, likely, probabilities = (torch.cat(parts) for parts in zip(*texts))

    draft = Llama({**config, **SHAPE}, first_tensors(model))
    optimizer = torch.optim.AdamW(draft.tensors.values(), lr=1e-3, betas=(0.9, 0.95), weight_decay=0.01)
    for step in range(args.steps):
        rate = 3e-3 * min(1, (step + 1) / 30) * (0.03 + 0.97 * 0.5 * (1 + math.cos(math.pi * step / args.steps)))
        for group in optimizer.param_groups:
            group["lr"] = rate
        if step < args.steps // 2:
            rows = train[torch.randint(len(train) - 129, (24, 1), generator=generator) + torch.arange(129)]
            loss = F.cross_entropy(draft(rows[:, :-1]).flatten(0, 1), rows[:, 1:].flatten())
        else:
            chosen = torch.randint(len(ids), (24,), generator=generator)
            logs = draft(ids[chosen, :-1])[:, prompt - 1:].log_softmax(-1)
            weights = probabilities[chosen] / probabilities[chosen].sum(-1, keepdim=True)
            loss = -(logs.gather(-1, likely[chosen]) * weights).sum(-1).mean()
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(draft.tensors.values(), 1.0)
        optimizer.step()
        if (step + 1) % 25 == 0:
            with torch.no_grad():
                same = (draft(ids[:48, :-1])[:, prompt - 1:].argmax(-1) == likely[:48, :, 0]).float().mean()
            print(f"step {step + 1} loss {loss.item():.3f} same first choice {same:.3f} {time.time() - start:.0f} s", flush=True)

    args.out.mkdir(parents=True, exist_ok=True)
    write_safetensors(args.out / "model.safetensors", draft.tensors)
    (args.out / "config.json").write_text(json.dumps({**config, **SHAPE}, indent=2) + "\n")


if __name__ == "__main__":
    main()
