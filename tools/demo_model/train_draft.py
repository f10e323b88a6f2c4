#!/usr/bin/env python3
"""Trains the draft model of the demo model: a Llama of 3 layers and hidden size 128, for `--speculate draft=demo/draft`.

usage: train_draft.py MODEL_DIR OUT_DIR [--texts N] [--length N] [--batch N] [--seconds N] [--layers N] [--hidden N] [--sharpness X]
MODEL_DIR is the demo model. It writes texts from random first tokens, greedily and at temperatures up to 1, and continues pieces of them that come several times. The
draft model is trained on these texts towards the demo model's probabilities; in greedy texts towards those of its logits times the sharpness, since only the likeliest token
counts there. Runs on a GPU if there is one, compiled. Needs PyTorch 2.5 or newer.
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
SHAPE = {"hidden_size": 128, "num_hidden_layers": 3, "num_attention_heads": 2, "num_key_value_heads": 1, "head_dim": 64,
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
            q, k = self.rotate(q, past).to(v.dtype), self.rotate(k, past).to(v.dtype)
            if cache is not None:
                if past:
                    k, v = torch.cat((cache[layer][0], k), 2), torch.cat((cache[layer][1], v), 2)
                    cache[layer] = (k, v)
                else:
                    cache.append((k, v))
            # A call has several tokens and an empty cache, or one token: only several need a causal mask.
            mixed = F.scaled_dot_product_attention(q, k, v, is_causal=length > 1, enable_gqa=True)
            x = x + F.linear(mixed.transpose(1, 2).reshape(batch, length, -1), t[p + "self_attn.o_proj.weight"])
            normed = self.norm(x, p + "post_attention_layernorm.weight")
            gate = F.silu(F.linear(normed, t[p + "mlp.gate_proj.weight"])) * F.linear(normed, t[p + "mlp.up_proj.weight"])
            x = x + F.linear(gate, t[p + "mlp.down_proj.weight"])
        return self.norm(x, "model.norm.weight")

    def __call__(self, ids, cache=None):
        """Returns the logits [batch, length, vocabulary]."""
        return F.linear(self.states(ids, cache), self.tensors["model.embed_tokens.weight"])


@torch.no_grad()
def write_texts(model, starts, length, device):
    """Tokens [batch, length]: the starts [batch, any], continued: those of even numbers greedily, the others at temperatures 0.7 and 1."""
    temperatures = torch.tensor([0.0, 0.7, 0.0, 1.0], device=device).repeat(len(starts) // 4 + 1)[: len(starts), None]
    ids, new, cache = starts, starts, []
    while ids.shape[1] < length:
        with torch.autocast(device.type, torch.bfloat16):
            logits = model(new, cache)[:, -1].float()
        uniform = torch.rand(logits.shape, device=device).clamp(1e-9, 1 - 1e-7)
        # The first tokens are drawn at temperature 1, so that greedy texts differ.
        heat = temperatures if ids.shape[1] >= 8 else torch.ones_like(temperatures)
        new = (logits - heat * torch.log(-torch.log(uniform))).argmax(-1, keepdim=True)
        ids = torch.cat((ids, new), 1)
    return ids


def make_texts(model, count, length, device):
    """Tokens [count, length]: texts of the model, and as many in which a piece of one of them comes again and again before the model continues."""
    batch, texts = min(4096, count // 2), []
    for _ in range(0, count, 2 * batch):
        own = write_texts(model, torch.randint(1, model.config["vocab_size"], (batch, 1), device=device), length, device)
        piece = int(torch.randint(24, 112, (1,)))
        first = int(torch.randint(0, length - piece, (1,)))
        copies = own[:, first: first + piece].repeat(1, length // piece + 1)
        texts += [own, write_texts(model, copies[:, : length - 96], length, device)]
    return torch.cat(texts)


def first_tensors(model, shape):
    """The draft model before training: the demo model's embedding projected to fewer dimensions, the rest at random."""
    hidden, inner = shape["hidden_size"], shape["intermediate_size"]
    embedding = model.tensors["model.embed_tokens.weight"]
    basis = torch.linalg.svd(embedding, full_matrices=False).Vh[:hidden]
    tensors = {"model.embed_tokens.weight": embedding @ basis.T, "model.norm.weight": torch.ones(hidden)}
    q, kv = shape["num_attention_heads"] * shape["head_dim"], shape["num_key_value_heads"] * shape["head_dim"]
    for layer in range(shape["num_hidden_layers"]):
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
    parser.add_argument("out", type=pathlib.Path)
    parser.add_argument("--texts", type=int, default=65536)
    parser.add_argument("--length", type=int, default=448)
    parser.add_argument("--batch", type=int, default=96)
    parser.add_argument("--seconds", type=float, default=240, help="of the training, without the writing of the texts")
    parser.add_argument("--layers", type=int, default=SHAPE["num_hidden_layers"])
    parser.add_argument("--hidden", type=int, default=SHAPE["hidden_size"])
    parser.add_argument("--sharpness", type=float, default=2)
    args = parser.parse_args()
    torch.manual_seed(1)
    torch.set_float32_matmul_precision("high")
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    config = json.loads((args.model / "config.json").read_text())
    shape = {**SHAPE, "num_hidden_layers": args.layers, "hidden_size": args.hidden, "intermediate_size": args.hidden * 5 // 2}
    model = Llama(config, {name: tensor.to(device) for name, tensor in read_safetensors(args.model / "model.safetensors").items()})
    model.angles = model.angles.to(device)
    start = time.time()
    texts = make_texts(model, args.texts, args.length, device)
    factors = torch.tensor([args.sharpness, 1.0], device=device).repeat(len(texts) // 2)[:, None, None]  # of a text's logits
    print(f"{len(texts)} texts {time.time() - start:.0f} s", flush=True)

    held = 128
    order = torch.randperm(len(texts), device=device)
    texts, factors = texts[order], factors[order]
    draft = Llama({**config, **shape}, {name: tensor.detach().to(device).requires_grad_() for name, tensor in first_tensors(model, shape).items()})
    draft.angles = draft.angles.to(device)

    def loss_of(ids, factor):
        with torch.autocast(device.type, torch.bfloat16):
            with torch.no_grad():
                wanted = model(ids)
            logs = draft(ids)
        return -((wanted.float() * factor).softmax(-1) * logs.float().log_softmax(-1)).sum(-1).mean()

    optimizer = torch.optim.AdamW(draft.tensors.values(), lr=1e-3, betas=(0.9, 0.95), weight_decay=0.01, fused=True)
    if device.type == "cuda":
        loss_of = torch.compile(loss_of)
    begin, step = time.time(), 0
    while (done := (time.time() - begin) / args.seconds) < 1:
        for group in optimizer.param_groups:
            group["lr"] = 4e-3 * min(1, (step + 1) / 100) * (0.02 + 0.98 * 0.5 * (1 + math.cos(math.pi * done)))
        rows = torch.randint(held, len(texts), (args.batch,), device=device)
        loss = loss_of(texts[rows, :-1], factors[rows])
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(draft.tensors.values(), 1.0)
        optimizer.step()
        step += 1
        if step % 1000 == 0:
            report(model, draft, texts[:held], step, loss, time.time() - start)
    report(model, draft, texts[:held], step, loss, time.time() - start)
    args.out.mkdir(parents=True, exist_ok=True)
    write_safetensors(args.out / "model.safetensors", {name: tensor.cpu() for name, tensor in draft.tensors.items()})
    (args.out / "config.json").write_text(json.dumps({**config, **shape}, indent=2) + "\n")


@torch.no_grad()
def report(model, draft, texts, step, loss, seconds):
    """How often the most likely token is the same, in texts that were not trained on: in their first 96 tokens and in the last 96."""
    same = (draft(texts).argmax(-1) == model(texts).argmax(-1)).float()
    print(f"step {step} loss {loss.item():.3f} same first choice {same[:, 8:96].mean():.3f} {same[:, -96:].mean():.3f} {seconds:.0f} s", flush=True)


if __name__ == "__main__":
    main()
