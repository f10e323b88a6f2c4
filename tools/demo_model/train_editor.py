#!/usr/bin/env python3
"""Trains the editor, a LoRA adapter of the demo model that tells a passage again, with one word replaced where the prompt says so.

usage: train_editor.py MODEL_DIR TRAIN.txt VALID.txt OUT_DIR [--rank N] [--examples N] [--batch N] [--seconds N] [--rate X]
MODEL_DIR is the demo model, and the texts are those that train_tokenizer.py reads. OUT_DIR receives the adapter in PEFT's format (adapter_config.json,
adapter_model.safetensors in bf16). All linear modules of the layers are adapted. A prompt and its answer are, for example

    PASSAGE

    Tell it again, with a bear instead of the wolf:

    PASSAGE, in which every "wolf" is a "bear"<|endoftext|>

or, without a replacement, "Tell it again:" and the same passage. Runs on a GPU if there is one, compiled. Needs PyTorch 2.5 or newer, and tokenizers.
"""
import argparse
import json
import math
import pathlib
import random
import re
import time

import torch
import torch.nn.functional as F
from tokenizers import Tokenizer

from train_draft import Llama, read_safetensors, write_safetensors

ROW = 1024  # tokens of a row of a batch, which holds several examples
MODULES = ["self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj", "self_attn.o_proj", "mlp.gate_proj", "mlp.up_proj", "mlp.down_proj"]
# Each begins with a consonant, so that "a" before it stays right.
NOUNS = ("wolf fox bear king queen prince princess dog cat horse bird frog giant witch boy girl man woman miller tailor soldier shepherd hunter fisherman dragon lion"
         " mouse goat sheep cow pig hare rabbit monkey tiger crow snake fish spider knight merchant beggar farmer cook baker blacksmith robber thief sailor captain"
         " priest judge child mother father sister brother daughter son lady lord fairy dwarf troll goose hen duck swan donkey castle garden river forest mountain"
         " cottage tree bridge boat ship ring sword bell book stone basket box").split()
FOUND = re.compile(r"\b(" + "|".join(NOUNS) + r")\b", re.IGNORECASE)


def passages(text):
    """Yields passages of one or more whole paragraphs of a document, of 150 to 1,200 characters."""
    for document in text.split("<|endoftext|>"):
        taken, wanted = [], random.randint(150, 1000)
        for paragraph in document.strip().split("\n\n"):
            taken.append(paragraph)
            length = sum(map(len, taken))
            if length >= wanted:
                if length <= 1200:
                    yield "\n\n".join(taken)
                taken, wanted = [], random.randint(150, 1000)


def example(passage):
    """A prompt and its answer."""
    nouns = sorted({noun.lower() for noun in FOUND.findall(passage)})
    if not nouns or random.random() < 0.25:
        return f"{passage}\n\nTell it again:\n\n", passage
    old = random.choice(nouns)
    new = random.choice([noun for noun in NOUNS if noun not in nouns])

    def replace(match):
        return new.capitalize() if match[0][0].isupper() else new
    answer = re.sub(rf"\b{old}\b", replace, passage, flags=re.IGNORECASE)
    return f"{passage}\n\nTell it again, with a {new} instead of the {old}:\n\n", answer


def make_rows(text, count, tokenizer, device):
    """Rows of tokens [rows, ROW + 1], which hold up to `count` examples one behind the other, and the same with -100 in place of what is not an answer's."""
    found, examples = list(passages(text)), []
    while len(examples) < count:
        random.shuffle(found)
        examples += [example(passage) for passage in found]
    examples = examples[:count]
    prompts = tokenizer.encode_batch([prompt for prompt, _ in examples])
    answers = tokenizer.encode_batch([answer for _, answer in examples])
    rows, wanted, row, mask = [], [], [], []
    for prompt, answer in zip(prompts, answers):
        ids = prompt.ids + answer.ids + [0]
        if len(ids) > ROW + 1:
            continue
        if len(row) + len(ids) > ROW + 1:
            padding = ROW + 1 - len(row)
            rows.append(row + [0] * padding)
            wanted.append(mask + [-100] * padding)
            row, mask = [], []
        row = row + ids
        mask = mask + [-100] * len(prompt.ids) + answer.ids + [0]
    return torch.tensor(rows, device=device), torch.tensor(wanted, device=device)


def first_factors(config, rank, device):
    """The factors A and B of each module, by its name in a checkpoint: A at random and B zero, so that the adapter changes nothing at first."""
    hidden, inner, dim = config["hidden_size"], config["intermediate_size"], config["head_dim"]
    q, kv = config["num_attention_heads"] * dim, config["num_key_value_heads"] * dim
    sizes = dict(zip(MODULES, ((hidden, q), (hidden, kv), (hidden, kv), (q, hidden), (hidden, inner), (hidden, inner), (inner, hidden))))
    factors = {}
    for layer in range(config["num_hidden_layers"]):
        for module, (num_in, num_out) in sizes.items():
            a, b = torch.randn(rank, num_in, device=device) / math.sqrt(num_in), torch.zeros(num_out, rank, device=device)
            factors[f"model.layers.{layer}.{module}"] = (a.requires_grad_(), b.requires_grad_())
    return factors


def merged(tensors, factors, scale):
    """The model's tensors with the adapter added to their matrices."""
    return {**tensors, **{f"{name}.weight": tensors[f"{name}.weight"] + scale * (b @ a) for name, (a, b) in factors.items()}}


@torch.no_grad()
def report(logits_of, rows, wanted, line):
    """Prints how many tokens of the answers are the likeliest ones, and in how many answers all are, so that the greedy answer is right."""
    right, answers = [], []
    for first in range(0, len(rows), 32):
        targets = wanted[first: first + 32, 1:]
        is_same = (logits_of(rows[first: first + 32, :-1]).argmax(-1) == targets).cpu()
        for same, target in zip(is_same, targets.cpu()):
            places = (target != -100).nonzero()[:, 0].tolist()
            whole = True
            for place in places:
                whole = whole and bool(same[place])
                right.append(bool(same[place]))
                if target[place] == 0:
                    answers.append(whole)
                    whole = True
    print(f"{line} tokens right {sum(right) / len(right):.4f} answers right {sum(answers) / len(answers):.3f} of {len(answers)}", flush=True)


def fit(logits_of, factors, training, held, args):
    """Trains the factors for args.seconds, and reports on the held-out rows. `training` and `held`: what make_rows() returns."""
    @torch.compile
    def loss_of(ids, targets):
        return F.cross_entropy(logits_of(ids).float().flatten(0, 1), targets.flatten(), ignore_index=-100)

    rows, wanted = training
    parameters = [factor for pair in factors.values() for factor in pair]
    optimizer = torch.optim.AdamW(parameters, lr=args.rate, betas=(0.9, 0.95), weight_decay=0.01, fused=True)
    loss_of(rows[:args.batch, :-1], wanted[:args.batch, 1:]).backward()  # compiles
    begin, step = time.time(), 0
    while (done := (time.time() - begin) / args.seconds) < 1:
        for group in optimizer.param_groups:
            group["lr"] = args.rate * min(1, (step + 1) / 100) * (0.02 + 0.98 * 0.5 * (1 + math.cos(math.pi * done)))
        chosen = torch.randint(len(rows), (args.batch,), device=rows.device)
        loss = loss_of(rows[chosen, :-1], wanted[chosen, 1:])
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(parameters, 1.0)
        optimizer.step()
        step += 1
        if step % 1000 == 0:
            report(logits_of, held[0][:32], held[1][:32], f"step {step} loss {loss.item():.4f}:")
    report(logits_of, *held, f"step {step} loss {loss.item():.4f}:")


def write_adapter(out, factors, rank, scale):
    """Writes the two files of PEFT's format."""
    out.mkdir(parents=True, exist_ok=True)
    tensors = {}
    for name, (a, b) in factors.items():
        tensors[f"base_model.model.{name}.lora_A.weight"], tensors[f"base_model.model.{name}.lora_B.weight"] = a.cpu(), b.cpu()
    write_safetensors(out / "adapter_model.safetensors", tensors)
    config = {"peft_type": "LORA", "task_type": "CAUSAL_LM", "base_model_name_or_path": "../model", "bias": "none", "inference_mode": True,
              "lora_alpha": scale * rank, "lora_dropout": 0.0, "r": rank,
              "target_modules": sorted(module.split(".")[1] for module in MODULES)}
    (out / "adapter_config.json").write_text(json.dumps(config, indent=2) + "\n")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("model", type=pathlib.Path)
    parser.add_argument("train", type=pathlib.Path)
    parser.add_argument("valid", type=pathlib.Path)
    parser.add_argument("out", type=pathlib.Path)
    parser.add_argument("--rank", type=int, default=16)
    parser.add_argument("--examples", type=int, default=100000)
    parser.add_argument("--batch", type=int, default=32, help="rows of 1,024 tokens")
    parser.add_argument("--seconds", type=float, default=120, help="of the training, without the making of the examples")
    parser.add_argument("--rate", type=float, default=2e-3, help="the highest learning rate")
    args = parser.parse_args()
    torch.manual_seed(1)
    random.seed(1)
    torch.set_float32_matmul_precision("high")
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    tokenizer = Tokenizer.from_file(str(args.model / "tokenizer.json"))
    training = make_rows(args.train.read_text(), args.examples, tokenizer, device)
    held = make_rows(args.valid.read_text(), 600, tokenizer, device)
    print(f"{len(training[0])} rows and {len(held[0])} others", flush=True)

    config = json.loads((args.model / "config.json").read_text())
    base = {name: tensor.to(device) for name, tensor in read_safetensors(args.model / "model.safetensors").items()}
    factors, scale = first_factors(config, args.rank, device), 2.0
    model = Llama(config, base)
    model.angles = model.angles.to(device)

    def logits_of(ids):
        model.tensors = merged(base, factors, scale)
        with torch.autocast(device.type, torch.bfloat16):
            return model(ids)

    fit(logits_of, factors, training, held, args)
    write_adapter(args.out, factors, args.rank, scale)


if __name__ == "__main__":
    main()
