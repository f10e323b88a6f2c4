// The server's metrics: Prometheus's text form, sums over models, and percentiles from histograms.

const kSample = /^([a-zA-Z_:][\w:]*)(?:\{(.*)\})? (\S+)$/;
const kLabel = /(\w+)="((?:[^"\\]|\\.)*)"/g;

export function parseMetrics(text) {
  const samples = [];
  for (const each of text.split("\n")) {
    const match = kSample.exec(each);
    if (match === null) continue;
    const labels = {};
    for (const [, name, value] of (match[2] ?? "").matchAll(kLabel)) labels[name] = value;
    samples.push({ name: match[1], labels, value: match[3] === "+Inf" ? Infinity : Number(match[3]) });
  }
  return samples;
}

// The sum of the samples that have these labels.
export function sumOf(samples, name, labels = {}) {
  let sum = 0;
  for (const sample of samples) {
    if (sample.name !== name) continue;
    if (Object.entries(labels).every(([label, value]) => sample.labels[label] === value)) sum += sample.value;
  }
  return sum;
}

// The cumulative counts of a histogram over all models, by upper bound.
export function bucketsOf(samples, name) {
  const buckets = new Map();
  for (const sample of samples) {
    if (sample.name !== `${name}_bucket`) continue;
    const bound = sample.labels.le === "+Inf" ? Infinity : Number(sample.labels.le);
    buckets.set(bound, (buckets.get(bound) ?? 0) + sample.value);
  }
  return buckets;
}

// The percentile of what has been added between two readings; null if nothing was. Values are taken as evenly spread within a bucket, and those above the
// last bound as equal to it.
export function percentileBetween(earlier, later, fraction) {
  const bounds = [...later.keys()].sort((a, b) => a - b);
  const added = bounds.map((bound) => later.get(bound) - (earlier.get(bound) ?? 0));
  const total = added.at(-1) ?? 0;
  if (!(total > 0)) return null;
  const wanted = fraction * total;
  let below = 0;
  let lower = 0;
  for (const [index, bound] of bounds.entries()) {
    if (added[index] >= wanted) {
      if (bound === Infinity) return lower;
      return lower + (bound - lower) * ((wanted - below) / Math.max(added[index] - below, 1e-9));
    }
    below = added[index];
    lower = bound;
  }
  return lower;
}
