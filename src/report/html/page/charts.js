// The data and the words of each chart, and why it may be empty. Each kind of chart is drawn in a file of its own.
//
// A point names its case, which is all that filters need to know, and the panel that it is drawn in.

const NOTHING_RAN = "No case was measured; the compatibility matrix below says why, `inferbench devices` says what would add more.";

// A value that a logarithmic axis can show, and one that a linear axis can.
const positive = (value) => (Number.isFinite(value) && value > 0 ? value : null);
const finite = (value) => (Number.isFinite(value) ? value : null);
const withBatch = (one) => `${one.group} · batch ${one.batch_size}`;

// The points of all measured cases, or of those that have a figure.
function pointsOf(point) {
  return cases.flatMap((one, index) => {
    const found = one.status === "ok" ? point(one, index) : null;
    return found ? [{ case: index, ...found }] : [];
  });
}
const hasMeasured = cases.some((one) => one.status === "ok");

// A value per batch size, with the ends of its whisker.
function batches(chart, figures) {
  const points = pointsOf((one) => {
    const [value, low, high] = figures(one).map(positive);
    return value && { panel: one.group, batch_size: one.batch_size, value, low, high };
  });
  return { kind: "batches", x: "batch size (samples)", absent: points.length ? null : NOTHING_RAN, points, ...chart };
}

// Latency against the size of the input, for cases that differ in nothing else. The size is the product of the sizes
// that were asked for, such as pixels, or the sequence length.
const ofAnySize = (one) => `${one.of_any_size} · batch ${one.batch_size}`;
const sizesOf = d3.rollup(cases.filter((one) => one.status === "ok" && one.size), (same) => new Set(same.map((one) => one.size)).size, ofAnySize);
const sized = pointsOf((one) => sizesOf.get(ofAnySize(one)) > 1 && one.size && positive(one.latency_p50_ms) && {
  panel: ofAnySize(one), size: one.size, said: one.sizes, names: one.size_names,
  value: one.latency_p50_ms, low: one.latency_p50_ms, high: positive(one.latency_p99_ms),
});

// Calls that read or make tokens are counted in tokens.
const isInTokens = (one) => ["prefill", "decode"].includes(one.phase) && one.tokens_per_second !== undefined;

const latencies = batches({
  id: "latency", title: "Latency against batch size", y: "latency, p50 to p99 (ms)", isLog: true,
  caption: "Median time of a call; the whisker ends at p99. Lower is better.",
}, (one) => [one.latency_p50_ms, one.latency_p50_ms, one.latency_p99_ms]);

const throughputs = batches({
  id: "throughput", title: "Throughput against batch size", y: "throughput (samples/s; tokens/s for prefill, decode)", isLog: true,
  caption: "Samples per second; tokens per second for prefill and decode. The whisker is the confidence interval of the mean, 95 % by default. Higher is better.",
}, (one) => (isInTokens(one) ? [one.tokens_per_second, null, null] : [one.throughput_ips, one.throughput_lower_ips, one.throughput_upper_ips]));

const memories = batches({
  id: "memory", title: "Memory against batch size", y: "peak memory (MB)", isLog: false,
  caption: "Peak resident memory of a process that only runs this case; peak memory of the device if it has its own. Lower is better.",
}, (one) => [one.peak_memory_mb, null, null]);
if (memories.absent && hasMeasured) memories.absent = "No case has its memory; measure it with `inferbench run` and `watch = true`.";

// The quantiles as they were kept; the percentiles of the record if the run has none.
const curves = pointsOf((one) => {
  const percentiles = [50, 90, 95, 99].map((percent) => ({
    fraction: percent / 100, ms: positive(one[`latency_p${percent}_ms`]), upper: positive(one[`latency_p${percent}_upper_ms`]),
  })).filter(({ ms }) => ms);
  const kept = one.quantiles_ms.filter(([, ms]) => ms > 0);
  const quantiles = kept.length ? kept : percentiles.map(({ fraction, ms }) => [fraction, ms]);
  // A percentile that no call exceeds would only repeat the largest call.
  const told = quantiles.at(-1)?.[0] ?? 0;
  return quantiles.length > 0 && { panel: withBatch(one), quantiles, bounds: percentiles.filter(({ fraction }) => fraction <= told) };
});

const ratios = pointsOf((one) => positive(one.ratio_to_best) && {
  panel: null, row: one.family || "unknown", series: one.series, value: one.ratio_to_best,
});

// A case that was measured in only one place has nothing to be compared with.
const hasMachines = payload.machines.length > 1;
const place = (one) => (hasMachines ? `${one.machine} · ${one.device}` : one.device);
const dotRow = (one) => `${one.backend} · ${one.dtype} · batch ${one.batch_size}`;
const placesOf = d3.rollup(cases.filter((one) => one.status === "ok"), (same) => new Set(same.map(place)).size, (one) => one.group, dotRow);
const elsewhere = pointsOf((one) => placesOf.get(one.group).get(dotRow(one)) > 1 && positive(one.latency_p50_ms) && {
  panel: one.group, row: dotRow(one), series: place(one), value: one.latency_p50_ms,
});

// A quantity against the latency at the smallest batch size, in a panel for each kind of input that several models have. Calls of
// different phases do different work and are not compared.
function fronts(quantity, samplesOf = () => undefined, shown = positive) {
  const smallest = d3.rollup(cases.filter((one) => one.status === "ok"), (same) => d3.min(same, (one) => one.batch_size), (one) => one.group);
  const points = pointsOf((one) => {
    const [x, y] = [positive(one.latency_p50_ms), shown(quantity(one))];
    const parts = [one.modality || "models", samplesOf(one), one.phase === "forward" ? undefined : one.phase];
    const panel = parts.filter(Boolean).join(" · ");
    return x && y !== null && one.batch_size === smallest.get(one.group) && { panel, x, y, label: one.group };
  });
  const models = d3.rollup(points, (same) => new Set(same.map((point) => point.label)).size, (point) => point.panel);
  return points.filter((point) => models.get(point.panel) > 1);
}

const sizes = fronts((one) => one.model_size_mb);
const areKnown = (name) => cases.some((one) => one[name] !== undefined);
const isLabelled = areKnown("accuracy") || !areKnown("output_cosine");
const answers = fronts((one) => (isLabelled ? 100 * one.accuracy : one.output_cosine), (one) => (isLabelled ? one.data_source : undefined), finite);
const ANSWERS_CAPTION = "against the median time of a call at the smallest batch size, for models with the same kind of input. The line is the " +
  "Pareto front: every point below and to the right of it is";

// A case that was measured once has no trend.
const timesMeasured = d3.rollup(payload.trend, (same) => same.length, (point) => point.case);
const trendPoints = d3.sort(payload.trend.filter((point) => timesMeasured.get(point.case) > 1), (point) => point.case)
  .map((point) => ({ ...point, panel: withBatch(cases[point.case]) }));

// The trials of load tests: a case has a curve for each way to divide the processors among sessions.
const trials = (x, y) => cases.flatMap((one, index) => (one.load ?? []).map((trial) => ({
  case: index, panel: withBatch(one), server: trial.is_server, x: trial[x], y: trial[y], label: trial.is_knee ? `${trial.split}, knee` : trial.split,
})).filter((point) => positive(point.x) && positive(point.y)));
const loads = trials("ms", "per_s");
// Language models answer requests with tokens.
const tokens = trials("ttft_ms", "tokens_per_s");

// The forms of language models that decode, where there are several. A runtime may compute quantised weights in f32. The divergence is that of the same form, also where it was
// found in another phase.
const formOf = (one) => [one.model, one.variant, one.backend, one.device, one.dtype, one.machine].join(" ");
const divergences = new Map(cases.filter((one) => one.kl_divergence !== undefined).map((one) => [formOf(one), one.kl_divergence]));
// Without an original in f32, the one in the model's own dtype is the reference.
const originals = cases.filter((one) => one.status === "ok" && one.variant === "original");
const dtypesOf = d3.rollup(originals, (same) => new Set(same.map((one) => one.dtype)).size, (one) => one.model);
const decoded = pointsOf((one, index) => {
  const [x, y] = [positive(one.model_size_mb), positive(one.tokens_per_second)];
  const panel = [one.model, ...(one.sizes ? [one.sizes] : []), `batch ${one.batch_size}`, ...(hasMachines ? [one.machine] : [])].join(" · ");
  const label = one.variant !== "original" || one.dtype === "f32" ? one.variant : `original ${one.dtype}`;
  const isReference = one.variant === "original" && (one.dtype === "f32" || dtypesOf.get(one.model) === 1);
  return one.phase === "decode" && x && y && { key: index, panel, x, y, label, kl: isReference ? 0 : divergences.get(formOf(one)) };
});
const formsOf = d3.rollup(decoded, (same) => new Set(same.map((point) => point.label)).size > 1 && same.some((point) => cases[point.case].variant !== "original" || cases[point.case].dtype === "i8"), (point) => point.panel);
const quantised = decoded.filter((point) => formsOf.get(point.panel));

function reason(one) {
  const batch = `batch ${one.batch_size}: `;
  if (one.status !== "ok") return batch + one.status + (one.message === undefined ? "" : `: ${one.message}`);
  if (!one.verified) return `${batch}runs; there is no reference to compare its outputs with`;
  const by = one.verified_by ?? "reference";
  const same = by === "reference" ? "outputs as the reference's" : `outputs agree with ${by}`;
  return batch + same + (one.max_rel_error === undefined ? "" : `, relative error ${one.max_rel_error.toExponential(1).replace("e+", "e")}`);
}

// Of many machines, and of those that share a suite, a cell is about all of them: the level that most have.
const MANY_MACHINES = 4;
const isTogether = payload.fleet && (payload.fleet.machines.length > MANY_MACHINES || !payload.fleet.has_same_cases);
const placesById = isTogether ? d3.group(d3.range(cases.length), (index) => cases[index].id.split("/").slice(0, -1).join("/")) : null;
const together = () => payload.fleet.compatibility.map(({ model, configuration, machines }) => {
  const levels = d3.sort(Object.entries(machines), ([, count]) => -count);
  const text = levels.map(([level, count]) => `${level} on ${count}`).join(", ");
  const indices = placesById.get(`${model}/${configuration}`) ?? [];
  // Where nothing ran, the cell has the colour of the reason if there is only one.
  const statuses = [...new Set(indices.map((index) => cases[index].status))];
  const kind = levels[0][0] === "none" && statuses.length === 1 && statuses[0] !== "ok" ? statuses[0] : levels[0][0];
  const reasons = [...new Set(indices.filter((index) => cases[index].status !== "ok").map((index) => reason(cases[index])))];
  return { cases: indices, kind, text, row: model, column: configuration, reason: [text, ...reasons].join("\n") };
});

const cells = isTogether ? together() : payload.matrix.map((cell) => {
  const [first] = cell.cases.map((index) => cases[index]);
  const configuration = `${first.backend} · ${first.device} · ${first.dtype}`;
  return {
    ...cell, row: first.group, column: hasMachines ? `${configuration} · ${first.machine}` : configuration,
    reason: cell.cases.map((index) => reason(cases[index])).join("\n"),
  };
});

const charts = [
  latencies, throughputs, memories,
  ...(!sized.length ? [] : [{
    id: "latency-by-size", title: "Latency against the size of the input", kind: "batches", at: "size", x: "size of the input", y: "latency, p50 to p99 (ms)", isLog: true,
    points: sized, absent: null, caption: "Median time of a call; the whisker ends at p99. Both axes are logarithmic: a line of slope 1 is a time in proportion to the size.",
  }]),
  {
    id: "distribution", title: "Distribution of the latency", kind: "distributions", x: "fraction of the calls", y: "latency (ms)", points: curves,
    caption: "The time that a fraction of the calls does not exceed: a flat line is a steady model, a rise to the right is a long tail. " +
      "Bars go from p50, p90, p95 and p99 to their 99 % upper bounds; a missing bar needs more calls.",
    absent: curves.length ? null : NOTHING_RAN,
  },
  {
    id: "architectures", title: "Architectures: time over the fastest", kind: "dots", x: "p50 ÷ fastest p50", y: "family", reference: 1, points: ratios,
    caption: "p50 over that of the fastest backend at the same model, phase and batch size, as the geometric mean over a family's cases. " +
      "1 is the fastest everywhere.",
    absent: ratios.length ? null : NOTHING_RAN,
  },
  {
    id: "hardware", title: "Hardware: the same case on several machines and devices", kind: "dots", x: "latency, p50 (ms)", y: "case", points: elsewhere,
    caption: "Median time of a call. Lower is better.",
    absent: elsewhere.length ? null
      : `No case was measured in two places, only on ${payload.machines[0]?.name ?? "no machine"}; copy another machine's folder of target-reports/ ` +
        "here and give both runs: `inferbench report RUN1 RUN2 --format html`.",
  },
  {
    id: "size", title: "Size against speed", kind: "front", x: "latency, p50 (ms)", y: "model size (MB)", isLog: true, better: "lower", points: sizes,
    caption: "Model files against the median time of a call at the smallest batch size, for models with the same kind of input. The line is the " +
      "Pareto front: every point above and to the right of it is larger and slower than another one.",
    absent: sizes.length ? null : !hasMeasured ? NOTHING_RAN
      : "No two models or variants with the same kind of input were measured; `inferbench models` lists those that could be measured, too.",
  },
  {
    id: "accuracy", kind: "front", x: "latency, p50 (ms)", isLog: false, better: "higher", points: answers,
    ...(isLabelled
      ? { title: "Accuracy against speed", y: "accuracy (%)", caption: `Right answers over labelled samples ${ANSWERS_CAPTION} less accurate and slower than another one.` }
      : { title: "Agreement with the original against speed", y: "cosine of the outputs", caption: `The cosine of the outputs with those of the original ${ANSWERS_CAPTION} farther from it and slower than another one.` }),
    absent: answers.length ? null
      : isLabelled ? "No two models or variants have an accuracy: it is the column `accuracy` of results.csv, which is filled for models with labelled samples."
      : "No two variants with the same kind of input have a cosine: it is the column `output_cosine` of results.csv, which is filled for variants.",
  },
  ...(!quantised.length ? [] : [{
    id: "forms", title: "Forms of language models: speed, size and loss", kind: "losses", x: "model size (MB)", y: "decode (tokens/s)", isLog: true, points: quantised, absent: null,
    caption: "Tokens per second of decoding against the model's files. The colour is the Kullback-Leibler divergence of the next token from the original's, in nats: " +
      "what the form loses. A ring marks the Pareto front: no other form is at least as small, as fast and as near to the original.",
  }]),
  {
    id: "trend", title: "Trend over runs", kind: "trend", x: "run", y: "latency, p50 (ms)", points: trendPoints,
    caption: "Median time of a call in each run, the newest on the right. A large triangle marks a change from the run before of more than 5 % that is larger than this " +
      "machine's noise explains (99 %): up is slower, down is faster.",
    absent: trendPoints.length ? null
      : "No case was measured twice on one machine; measure again, or show several: `inferbench report --last 10 --format html`.",
  },
  {
    id: "load", title: "Requests answered against latency", kind: "front", x: "latency under load (ms)", y: "requests answered (1/s)", isLog: false, better: "higher",
    points: loads, caption: "Each point is a trial of the newest load test: the latency from the scheduled time, at the percentile of its bound. Labels are sessions × threads. " +
      "The line is the Pareto front; from the knee on latency rises steeply.",
    absent: loads.length ? null : "No case that is shown was put under load; `inferbench load search --model NAME --p99 20ms` does it.",
  },
  ...(!tokens.length ? [] : [{
    id: "tokens", title: "Tokens per second against the time to the first", kind: "front", x: "TTFT, p99 (ms)", y: "output tokens per second",
    isLog: false, better: "higher", points: tokens, absent: null,
    caption: `Each point is a trial of the newest load test of a language model. Labels are sessions × threads. ${payload.definitions}`,
  }]),
  {
    id: "compatibility", title: "Compatibility", kind: "cells", x: "backend · device · dtype", y: "model", points: cells,
    caption: `${payload.rule} Point at a cell for the details.`,
    absent: cells.length ? null : "The run has no case; `inferbench run --dry-run` lists those of a suite.",
  },
];
