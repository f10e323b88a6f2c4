"""Reference Medusa heads in NumPy and double precision, written from the paper's equation: softmax(W2 (SiLU(W1 h + b) + h)), W1 and b once for each block."""
import numpy


def random_heads(seed, num_heads, num_blocks, hidden, vocab_size):
    """The tensors of medusa_lm_head.safetensors."""
    random = numpy.random.default_rng(seed)
    normal = lambda *shape: (random.standard_normal(shape) / 6).astype(numpy.float32)
    weights = {}
    for head in range(num_heads):
        for block in range(num_blocks):
            weights[f"{head}.{block}.linear.weight"] = normal(hidden, hidden)
            weights[f"{head}.{block}.linear.bias"] = normal(hidden)
        weights[f"{head}.{num_blocks}.weight"] = normal(vocab_size, hidden)
    return weights


def log_probs(weights, hidden, num_heads, num_blocks, outputs=None):
    """[num_heads, vocabulary] for one hidden state behind the final norm. `outputs`: the projection of all heads, in place of their own."""
    rows = []
    for head in range(num_heads):
        x = hidden
        for block in range(num_blocks):
            name = f"{head}.{block}.linear"
            y = weights[name + ".weight"].astype(numpy.float64) @ x + weights.get(name + ".bias", numpy.zeros(len(x)))
            x = x + y / (1 + numpy.exp(-y))
        logits = (weights[f"{head}.{num_blocks}.weight"] if outputs is None else outputs).astype(numpy.float64) @ x
        rows.append(logits - logits.max() - numpy.log(numpy.exp(logits - logits.max()).sum()))
    return numpy.stack(rows)


def likeliest_paths(rows, num_ranks, count):
    """The log probabilities of the `count` likeliest paths from the first head on, among the likeliest `num_ranks` tokens of each head."""
    top = -numpy.sort(-rows, -1)[:, :num_ranks]
    sums, level = [], numpy.zeros(1)
    for head in top:
        level = (level[:, None] + head[None]).reshape(-1)
        sums.append(level)
    return -numpy.sort(-numpy.concatenate(sums))[:count]
