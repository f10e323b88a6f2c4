// Live plots of the server's load, from its metrics.
import { bucketsOf, parseMetrics, percentileBetween, sumOf } from "./metrics.js";
import { call, element, reportError, setText } from "./server_api.js";

const kMaxReadings = 121;  // two minutes
const kPercentileReadings = 60;
const kWidth = 240;
const kHeight = 100;
const kSvg = "http://www.w3.org/2000/svg";
const kFractions = [0.5, 0.95, 0.99];

const readings = [];  // what the metrics said, oldest first

function perSecond(member) {
  return (index) => {
    if (index === 0) return null;
    const [earlier, later] = [readings[index - 1], readings[index]];
    return [Math.max(0, (later[member] - earlier[member]) / (later.seconds - earlier.seconds))];
  };
}

function percentiles(member) {
  return (index) => {
    const earlier = readings[Math.max(0, index - kPercentileReadings)];
    const values = kFractions.map((fraction) => percentileBetween(earlier[member], readings[index][member], fraction));
    return values[0] === null ? null : values.map((value) => value * 1000);
  };
}

function values(...members) {
  return (index) => members.map((member) => readings[index][member]);
}

const plots = [
  { title: "Requests a second", lines: [""], at: perSecond("requests") },
  { title: "Output tokens a second", lines: [""], at: perSecond("tokens") },
  { title: "Time to first token, ms", lines: ["p50", "p95", "p99"], at: percentiles("firstToken") },
  { title: "Time between tokens, ms", lines: ["p50", "p95", "p99"], at: percentiles("nextToken") },
  { title: "Sequences", lines: ["running", "waiting"], at: values("running", "waiting") },
  { title: "KV cache in use, %", lines: [""], at: values("cache") },
];

function drawn(name, attributes) {
  const made = document.createElementNS(kSvg, name);
  for (const [attribute, value] of Object.entries(attributes)) made.setAttribute(attribute, value);
  return made;
}

function addPlot(plot) {
  plot.value = element("output");
  plot.picture = drawn("svg", { viewBox: `0 0 ${kWidth} ${kHeight}`, preserveAspectRatio: "none", role: "img" });
  plot.picture.append(drawn("line", { class: "axis", x1: 0, y1: kHeight, x2: kWidth, y2: kHeight }));
  plot.paths = plot.lines.map((_, index) => drawn("path", { class: `line line-${index}` }));
  plot.picture.append(...plot.paths);
  const caption = element("figcaption", {}, element("span", { text: plot.title }), plot.value);
  return element("figure", { className: "plot" }, caption, plot.picture);
}

function show(value) {
  return value >= 100 ? value.toFixed(0) : value.toFixed(1);
}

function draw(plot) {
  const points = readings.map((_, index) => plot.at(index));
  const known = points.filter((each) => each !== null);
  const top = Math.max(1e-9, ...known.flat());
  for (const [line, path] of plot.paths.entries()) {
    let isDown = false;
    let steps = "";
    for (const [index, point] of points.entries()) {
      const x = kWidth - (points.length - 1 - index) * (kWidth / (kMaxReadings - 1));
      if (point !== null) steps += `${isDown ? "L" : "M"}${x.toFixed(1)} ${(kHeight - (point[line] / top) * (kHeight - 5)).toFixed(1)}`;
      isDown = point !== null;
    }
    path.setAttribute("d", steps);
  }
  const last = points.at(-1);
  const text = last === null || last === undefined ? "no data" : last.map((value, line) => `${plot.lines[line]} ${show(value)}`.trim()).join(", ");
  setText(plot.value, text);
  plot.picture.setAttribute("aria-label", `${plot.title}: ${text}; the top of the plot is ${show(top)}`);
}

function read(samples, seconds) {
  // An ensemble and its steps count the same requests; the engine counts each once.
  const blocks = (type) => sumOf(samples, "nv_trt_llm_kv_cache_block_metrics", { kv_cache_block_type: type });
  return {
    seconds,
    requests: sumOf(samples, "nereid_llm_time_to_first_token_seconds_count"),
    tokens: sumOf(samples, "nereid_llm_engine", { total: "output_tokens" }),
    firstToken: bucketsOf(samples, "nereid_llm_time_to_first_token_seconds"),
    nextToken: bucketsOf(samples, "nereid_llm_time_per_output_token_seconds"),
    running: sumOf(samples, "nv_trt_llm_request_metrics", { request_type: "active" }),
    waiting: sumOf(samples, "nv_trt_llm_request_metrics", { request_type: "waiting" }),
    cache: blocks("max") > 0 ? (100 * blocks("used")) / blocks("max") : 0,
  };
}

async function update() {
  try {
    const text = await (await call("/metrics")).text();
    readings.push(read(parseMetrics(text), performance.now() / 1000));
    if (readings.length > kMaxReadings) readings.shift();
    plots.forEach(draw);
  } catch (error) {
    reportError("The metrics can not be read", error);
  }
}

export function startLoad() {
  document.getElementById("plots").append(...plots.map(addPlot));
  return { update };
}
