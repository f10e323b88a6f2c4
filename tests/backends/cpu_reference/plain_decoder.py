"""Reference decoders of every architecture in NumPy and double precision, written from the published definitions without code of this project. They
process the whole sequence at once, without a cache. Weights have Hugging Face names and come from a checkpoint, or are random and created on first
use.
"""
import json
import math
import struct

import numpy as np

DTYPES = {"F32": np.float32, "F16": np.float16}


class StoredWeights:
    """The weights of a model.safetensors."""

    def __init__(self, folder):
        data = (folder / "model.safetensors").read_bytes()
        (size,) = struct.unpack("<Q", data[:8])
        self.tensors = {}
        for name, entry in json.loads(data[8:8 + size]).items():
            if name != "__metadata__":
                begin, end = entry["data_offsets"]
                flat = np.frombuffer(data[8 + size + begin:8 + size + end], DTYPES[entry["dtype"]])
                self.tensors[name] = flat.reshape(entry["shape"])

    def __call__(self, name, *shape):
        assert self.tensors[name].shape == shape, name
        return self.tensors[name].astype(np.float64)


class FreshWeights:
    """Random weights by name and seed: large enough that every part affects the result, small enough for float32."""

    def __init__(self, seed):
        self.seed, self.tensors = seed, {}

    def __call__(self, name, *shape):
        if name not in self.tensors:
            drawn = np.random.default_rng([self.seed, *name.encode()]).standard_normal(shape)
            is_norm = len(shape) == 1 and name.endswith("weight")
            self.tensors[name] = (drawn * (0.1 if len(shape) == 1 else 1.3 / math.sqrt(shape[-1])) + (0.8 if is_norm else 0)).astype(np.float32)
        return self.tensors[name].astype(np.float64)


def softmax(x):
    e = np.exp(x - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


erf = np.vectorize(math.erf)
ACTIVATIONS = {
    "silu": lambda x: x / (1 + np.exp(-x)),
    "gelu": lambda x: x * (1 + erf(x / math.sqrt(2))) / 2,
    "quick_gelu": lambda x: x / (1 + np.exp(-1.702 * x)),
    "relu": lambda x: np.maximum(x, 0),
    "gelu_new": lambda x: x * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3))) / 2,
}
ACTIVATIONS |= {"gelu_pytorch_tanh": ACTIVATIONS["gelu_new"], "gelu_fast": ACTIVATIONS["gelu_new"], "swish": ACTIVATIONS["silu"]}


def rms(x, weight, eps):
    return x / np.sqrt((x * x).mean(-1, keepdims=True) + eps) * weight


def layer_norm(x, weight, bias, eps):
    centred = x - x.mean(-1, keepdims=True)
    return centred / np.sqrt((centred * centred).mean(-1, keepdims=True) + eps) * weight + bias


def frequencies(rope, size, num_positions, max_positions):
    """The frequencies of the pairs of a head, and the factor on cosine and sine."""
    kind, theta = rope.get("rope_type", "default"), rope["rope_theta"]
    plain = theta ** (-np.arange(0, size, 2) / size)
    if kind == "linear":
        return plain / rope["factor"], 1.0
    if kind == "llama3":
        old = rope["original_max_position_embeddings"]
        low, high = rope["low_freq_factor"], rope["high_freq_factor"]
        wave = 2 * np.pi / plain
        share = (old / wave - low) / (high - low)
        mixed = (1 - share) * plain / rope["factor"] + share * plain
        return np.where(wave > old / low, plain / rope["factor"], np.where(wave < old / high, plain, mixed)), 1.0
    if kind == "yarn":
        old = rope["original_max_position_embeddings"]
        factor = rope["factor"] or max_positions / old
        place = lambda turns: size * math.log(old / (turns * 2 * math.pi)) / (2 * math.log(theta))
        first, last = max(math.floor(place(32)), 0), min(math.ceil(place(1)), size - 1)
        ramp = np.clip((np.arange(size // 2) - first) / max(last - first, 0.001), 0, 1)
        return plain / factor * ramp + plain * (1 - ramp), 0.1 * math.log(factor) + 1
    if kind == "longrope":
        old = rope["original_max_position_embeddings"]
        factors = np.array(rope["long_factor"] if num_positions > old else rope["short_factor"])
        stretch = max_positions / old
        return plain / factors, math.sqrt(1 + math.log(stretch) / math.log(old)) if stretch > 1 else 1.0
    if kind == "dynamic" and num_positions > max_positions:
        stretch = rope["factor"] * num_positions / max_positions - (rope["factor"] - 1)
        return (theta * stretch ** (size / (size - 2))) ** (-np.arange(0, size, 2) / size), 1.0
    return plain, 1.0


def rotate(x, rope, max_positions, num_positions=None):
    """x [positions, heads, size]: rotates the first elements of each head; element i of their first half pairs with element i of the second."""
    count, _, size = x.shape
    turned = int(size * rope.get("partial_rotary_factor", 1.0))
    step, scale = frequencies(rope, turned, num_positions or count, max_positions)
    angle = np.outer(np.arange(count), step)[:, None]
    cos, sin = np.cos(angle) * scale, np.sin(angle) * scale
    low, high = x[..., :turned // 2], x[..., turned // 2:turned]
    return np.concatenate([low * cos - high * sin, high * cos + low * sin, x[..., turned:]], -1)


def attend(q, k, v, scale, window=None, cap=None):
    """Attention over [positions, heads, size] each; k and v may have fewer heads."""
    repeat = q.shape[1] // k.shape[1]
    k, v = k.repeat(repeat, 1), v.repeat(repeat, 1)
    scores = np.einsum("ihd,jhd->hij", q, k) * scale
    if cap:
        scores = np.tanh(scores / cap) * cap
    distance = np.arange(len(q))[:, None] - np.arange(len(q))[None]
    hidden = (distance < 0) | (distance >= (window or len(q)))
    return np.einsum("hij,jhd->ihd", softmax(np.where(hidden, -np.inf, scores)), v).reshape(len(q), -1)


def linear(w, name, x, outputs, bias=False):
    y = x @ w(name + ".weight", outputs, x.shape[-1]).T
    return y + w(name + ".bias", outputs) if bias else y


class LlamaLike:
    """Llama, Mistral, Mixtral, Qwen 2 and 3 (also with experts), Phi-3, Gemma 2 and 3, StarCoder2."""

    def __init__(self, config, weights):
        self.c, self.w, self.kind = config, weights, config["model_type"]
        self.hidden, self.heads = config["hidden_size"], config["num_attention_heads"]
        self.kv_heads = config["num_key_value_heads"]
        self.size = config.get("head_dim") or self.hidden // self.heads
        self.is_gemma = self.kind.startswith("gemma")
        self.act = ACTIVATIONS[config.get("hidden_act") or config["hidden_activation"]]

    def norm(self, x, name):
        if self.kind == "starcoder2":
            return layer_norm(x, self.w(name + ".weight", x.shape[-1]), self.w(name + ".bias", x.shape[-1]), self.c["norm_epsilon"])
        weight = self.w(name + ".weight", x.shape[-1])
        return rms(x, 1 + weight if self.is_gemma else weight, self.c["rms_norm_eps"])

    def window(self, layer):
        if self.c.get("sliding_window") is None or self.c.get("use_sliding_window") is False:
            return None
        if "layer_types" in self.c and self.kind != "mistral":
            return self.c["sliding_window"] if self.c["layer_types"][layer] == "sliding_attention" else None
        if self.kind in ("qwen2", "qwen3") and layer < self.c["max_window_layers"]:
            return None
        return self.c["sliding_window"]

    def project(self, x, p):
        sizes = [self.heads * self.size, self.kv_heads * self.size, self.kv_heads * self.size]
        if self.kind == "phi3":
            parts = np.split(linear(self.w, p + "qkv_proj", x, sum(sizes)), np.cumsum(sizes)[:2], -1)
        else:
            bias = self.kind == "qwen2" or self.c.get("attention_bias") or self.c.get("use_bias")
            parts = [linear(self.w, p + name, x, size, bias) for name, size in zip(("q_proj", "k_proj", "v_proj"), sizes)]
        return [part.reshape(len(x), -1, self.size) for part in parts]

    def attention(self, x, layer, p):
        q, k, v = self.project(x, p)
        if self.kind in ("qwen3", "qwen3_moe", "gemma3_text"):
            q, k = self.norm(q, p + "q_norm"), self.norm(k, p + "k_norm")
        rope = self.c["rope_parameters"]
        if self.kind == "gemma3_text":
            rope = rope[self.c["layer_types"][layer]]
        q, k = (rotate(each, rope, self.c["max_position_embeddings"]) for each in (q, k))
        scale = self.c["query_pre_attn_scalar"] ** -0.5 if self.is_gemma else self.size**-0.5
        y = attend(q, k, v, scale, self.window(layer), self.c.get("attn_logit_softcapping"))
        return linear(self.w, p + "o_proj", y, self.hidden, bool(self.c.get("use_bias") or (self.kind == "llama" and self.c.get("attention_bias"))))

    def gated(self, x, gate, up, down, inner, bias=False):
        return linear(self.w, down, self.act(linear(self.w, gate, x, inner, bias)) * linear(self.w, up, x, inner, bias), self.hidden, bias)

    def has_experts(self, layer):
        if self.kind == "qwen3_moe":
            return layer not in self.c.get("mlp_only_layers", []) and (layer + 1) % self.c.get("decoder_sparse_step", 1) == 0
        return self.kind == "mixtral"

    def mlp(self, x, layer, p):
        inner = self.c["intermediate_size"]
        if self.kind == "starcoder2":
            return linear(self.w, p + "mlp.c_proj", self.act(linear(self.w, p + "mlp.c_fc", x, inner, True)), self.hidden, True)
        if self.kind == "phi3":
            gate, up = np.split(linear(self.w, p + "mlp.gate_up_proj", x, 2 * inner), 2, -1)
            return linear(self.w, p + "mlp.down_proj", self.act(gate) * up, self.hidden)
        if self.has_experts(layer):
            return self.experts(x, p)
        return self.gated(x, *(p + f"mlp.{name}_proj" for name in ("gate", "up", "down")), inner, bool(self.c.get("mlp_bias")))

    def experts(self, x, p):
        is_mixtral = self.kind == "mixtral"
        p += "block_sparse_moe." if is_mixtral else "mlp."
        names = ("w1", "w3", "w2") if is_mixtral else ("gate_proj", "up_proj", "down_proj")
        inner = self.c["intermediate_size" if is_mixtral else "moe_intermediate_size"]
        count = self.c.get("num_local_experts") or self.c["num_experts"]
        shares = softmax(linear(self.w, p + "gate", x, count))
        chosen = np.argsort(-shares, -1, kind="stable")[:, :self.c["num_experts_per_tok"]]
        kept = np.zeros_like(shares)
        np.put_along_axis(kept, chosen, np.take_along_axis(shares, chosen, -1), -1)
        if is_mixtral or self.c["norm_topk_prob"]:
            kept /= kept.sum(-1, keepdims=True)
        return sum(kept[:, e:e + 1] * self.gated(x, *(f"{p}experts.{e}.{name}" for name in names), inner) for e in range(count))

    def logits(self, ids):
        table = self.w("model.embed_tokens.weight", self.c["vocab_size"], self.hidden)
        x = table[ids] * (math.sqrt(self.hidden) if self.is_gemma else 1)
        for layer in range(self.c["num_hidden_layers"]):
            p = f"model.layers.{layer}."
            y = self.attention(self.norm(x, p + "input_layernorm"), layer, p + "self_attn.")
            if self.is_gemma:
                x = x + self.norm(y, p + "post_attention_layernorm")
                y = self.mlp(self.norm(x, p + "pre_feedforward_layernorm"), layer, p)
                x = x + self.norm(y, p + "post_feedforward_layernorm")
            else:
                x = x + y
                x = x + self.mlp(self.norm(x, p + "post_attention_layernorm"), layer, p)
        x = self.norm(x, "model.norm")
        out = x @ (table if self.c["tie_word_embeddings"] else self.w("lm_head.weight", *table.shape)).T
        cap = self.c.get("final_logit_softcapping")
        return np.tanh(out / cap) * cap if cap else out


class Gpt:
    """GPT-2 and GPTBigCode: learned positions, biases everywhere. GPT-2 stores its matrices transposed."""

    def __init__(self, config, weights):
        self.c, self.w = config, weights
        self.is_gpt2 = config["model_type"] == "gpt2"
        self.act = ACTIVATIONS[config["activation_function"]]

    def linear(self, name, x, outputs):
        matrix = self.w(name + ".weight", x.shape[-1], outputs) if self.is_gpt2 else self.w(name + ".weight", outputs, x.shape[-1]).T
        return x @ matrix + self.w(name + ".bias", outputs)

    def norm(self, x, name):
        return layer_norm(x, self.w(name + ".weight", x.shape[-1]), self.w(name + ".bias", x.shape[-1]), self.c["layer_norm_epsilon"])

    def attention(self, x, p, layer):
        hidden, heads = self.c["n_embd"], self.c["n_head"]
        size = hidden // heads
        if not self.is_gpt2 and self.c["multi_query"]:
            parts = np.split(self.linear(p + "c_attn", x, hidden + 2 * size), [hidden, hidden + size], -1)
        elif self.is_gpt2:
            parts = np.split(self.linear(p + "c_attn", x, 3 * hidden), 3, -1)
        else:  # query, key and value of a head are consecutive
            fused = self.linear(p + "c_attn", x, 3 * hidden).reshape(len(x), heads, 3 * size)
            parts = np.split(fused, 3, -1)
        q, k, v = (part.reshape(len(x), -1, size) for part in parts)
        scale = size**-0.5 if self.c.get("scale_attn_weights", True) else 1.0
        if self.c.get("scale_attn_by_inverse_layer_idx"):
            scale /= layer + 1
        return self.linear(p + "c_proj", attend(q, k, v, scale), hidden)

    def logits(self, ids):
        hidden = self.c["n_embd"]
        table = self.w("transformer.wte.weight", self.c["vocab_size"], hidden)
        x = table[ids] + self.w("transformer.wpe.weight", self.c["n_positions"], hidden)[:len(ids)]
        for layer in range(self.c["n_layer"]):
            p = f"transformer.h.{layer}."
            x = x + self.attention(self.norm(x, p + "ln_1"), p + "attn.", layer)
            inner = self.act(self.linear(p + "mlp.c_fc", self.norm(x, p + "ln_2"), self.c.get("n_inner") or 4 * hidden))
            x = x + self.linear(p + "mlp.c_proj", inner, hidden)
        return self.norm(x, "transformer.ln_f") @ (table if self.c["tie_word_embeddings"] else self.w("lm_head.weight", *table.shape)).T


class GptNeox:
    """Attention and MLP in parallel, or one after the other."""

    def __init__(self, config, weights):
        self.c, self.w = config, weights

    def norm(self, x, name):
        return layer_norm(x, self.w(name + ".weight", x.shape[-1]), self.w(name + ".bias", x.shape[-1]), self.c["layer_norm_eps"])

    def attention(self, x, p):
        hidden, heads = self.c["hidden_size"], self.c["num_attention_heads"]
        fused = linear(self.w, p + "query_key_value", x, 3 * hidden, True).reshape(len(x), heads, -1)
        q, k, v = np.split(fused, 3, -1)
        base = {"rope_theta": self.c.get("rotary_emb_base", 10000.0), "partial_rotary_factor": self.c.get("rotary_pct", 0.25)}
        rope = {**base, **self.c.get("rope_parameters", {})}
        q, k = (rotate(each, rope, self.c["max_position_embeddings"]) for each in (q, k))
        return linear(self.w, p + "dense", attend(q, k, v, q.shape[-1] ** -0.5), hidden, True)

    def logits(self, ids):
        hidden = self.c["hidden_size"]
        x = self.w("gpt_neox.embed_in.weight", self.c["vocab_size"], hidden)[ids]
        for layer in range(self.c["num_hidden_layers"]):
            p = f"gpt_neox.layers.{layer}."
            attended = self.attention(self.norm(x, p + "input_layernorm"), p + "attention.")
            y = self.norm(x if self.c["use_parallel_residual"] else x + attended, p + "post_attention_layernorm")
            inner = ACTIVATIONS[self.c["hidden_act"]](linear(self.w, p + "mlp.dense_h_to_4h", y, self.c["intermediate_size"], True))
            x = x + attended + linear(self.w, p + "mlp.dense_4h_to_h", inner, hidden, True)
        return self.norm(x, "gpt_neox.final_layer_norm") @ self.w("embed_out.weight", self.c["vocab_size"], hidden).T


class Remembering:
    """A decoder that caches its results, because every instruction set needs the same ones."""

    def __init__(self, made):
        self.made, self.known = made, {}

    def logits(self, ids):
        key = tuple(ids)
        if key not in self.known:
            self.known[key] = self.made.logits(ids)
        return self.known[key]


def decoder(config, weights):
    kind = {"gpt2": Gpt, "gpt_bigcode": Gpt, "gpt_neox": GptNeox}.get(config["model_type"], LlamaLike)
    return Remembering(kind(config, weights))
