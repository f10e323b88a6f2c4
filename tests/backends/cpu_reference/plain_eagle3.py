"""A reference EAGLE-3 head in NumPy and double precision, written from the paper and the published files' tensors."""
import numpy


def shapes(config, num_layers=3):
    hidden, inner, heads = config["hidden_size"], config["intermediate_size"], config["num_attention_heads"]
    kv = hidden // heads * config["num_key_value_heads"]
    return {"fc.weight": (hidden, num_layers * hidden), "norm.weight": (hidden,), "lm_head.weight": (config["draft_vocab_size"], hidden),
            "midlayer.hidden_norm.weight": (hidden,), "midlayer.input_layernorm.weight": (hidden,),
            "midlayer.post_attention_layernorm.weight": (hidden,), "midlayer.self_attn.q_proj.weight": (hidden, 2 * hidden),
            "midlayer.self_attn.k_proj.weight": (kv, 2 * hidden), "midlayer.self_attn.v_proj.weight": (kv, 2 * hidden),
            "midlayer.self_attn.o_proj.weight": (hidden, hidden), "midlayer.mlp.gate_proj.weight": (inner, hidden),
            "midlayer.mlp.up_proj.weight": (inner, hidden), "midlayer.mlp.down_proj.weight": (hidden, inner)}


def random_head(seed, config, vocab_size):
    random = numpy.random.default_rng(seed)
    weights = {}
    for name, shape in shapes(config).items():
        values = random.standard_normal(shape) / 6
        weights[name] = (values + (1 if len(shape) == 1 else 0)).astype(numpy.float32)
    chosen = numpy.sort(random.permutation(vocab_size)[: config["draft_vocab_size"]])
    weights["d2t"] = (chosen - numpy.arange(len(chosen))).astype(numpy.int64)
    return weights


class Head:
    """Follows one sequence: row p takes the target's hidden states of token p, and token p + 1."""

    def __init__(self, weights, config, embedding):
        self.w = {name: value.astype(numpy.float64) for name, value in weights.items()}
        self.c, self.embedding = config, embedding.astype(numpy.float64)
        self.keys, self.values = [], []

    def norm(self, x, name):
        return x / numpy.sqrt((x * x).mean() + self.c["rms_norm_eps"]) * self.w[name + ".weight"]

    def rotate(self, x, position):
        half = x.shape[-1] // 2
        angle = position * self.c["rope_theta"] ** (-numpy.arange(half) / half)
        low, high = x[..., :half], x[..., half:]
        return numpy.concatenate([low * numpy.cos(angle) - high * numpy.sin(angle), high * numpy.cos(angle) + low * numpy.sin(angle)], -1)

    def row(self, token, hidden, position):
        """Returns the draft logits and the hidden state for the next row."""
        heads, kv_heads = self.c["num_attention_heads"], self.c["num_key_value_heads"]
        size = self.c["hidden_size"] // heads
        layer = "midlayer."
        normed = self.norm(hidden, layer + "hidden_norm")
        if self.c.get("norm_before_residual"):
            hidden = normed
        both = numpy.concatenate([self.norm(self.embedding[token], layer + "input_layernorm"), normed])
        project = lambda x, name: self.w[f"{layer}{name}.weight"] @ x
        q = self.rotate(project(both, "self_attn.q_proj").reshape(heads, size), position)
        self.keys.append(self.rotate(project(both, "self_attn.k_proj").reshape(kv_heads, size), position))
        self.values.append(project(both, "self_attn.v_proj").reshape(kv_heads, size))
        keys, values = (numpy.stack(rows).repeat(heads // kv_heads, 1) for rows in (self.keys, self.values))
        scores = numpy.einsum("hd,jhd->hj", q, keys) / numpy.sqrt(size)
        scores = numpy.exp(scores - scores.max(-1, keepdims=True))
        attended = numpy.einsum("hj,jhd->hd", scores / scores.sum(-1, keepdims=True), values)
        hidden = hidden + project(attended.reshape(-1), "self_attn.o_proj")
        y = self.norm(hidden, layer + "post_attention_layernorm")
        gate = project(y, "mlp.gate_proj")
        hidden = hidden + project(gate / (1 + numpy.exp(-gate)) * project(y, "mlp.up_proj"), "mlp.down_proj")
        return self.w["lm_head.weight"] @ self.norm(hidden, "norm"), hidden


def logits_of_chain(weights, config, embedding, tokens, features, drafts):
    """Yields, for each of `drafts`, the draft logits from which it is chosen. `features` [len(tokens) - 1, 3 * hidden_size]."""
    head = Head(weights, config, embedding)
    for position in range(len(tokens) - 1):
        hidden = head.w["fc.weight"] @ features[position]
        logits, hidden = head.row(tokens[position + 1], hidden, position)
    for number, draft in enumerate(drafts):
        yield logits
        logits, hidden = head.row(draft, hidden, len(tokens) - 1 + number)
