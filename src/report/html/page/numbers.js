// Numbers for people: three digits, with units where they help.

function threeDigits(value) {
  const magnitude = Math.abs(value);
  if (magnitude >= 1e6) return value.toExponential(2).replace("e+", "e");
  if (magnitude >= 999.5) return String(Math.round(value)).replace(/\B(?=(\d{3})+$)/g, ",");
  if (magnitude >= 100) return value.toFixed(0);
  if (magnitude >= 10) return value.toFixed(1);
  if (magnitude >= 1 || magnitude === 0) return value.toFixed(2);
  return value.toPrecision(3);
}

function milliseconds(ms) {
  if (ms === null || ms === undefined) return "";
  // A value that would be rounded to a thousand has the next unit.
  if (ms * 1e6 < 999.5) return `${threeDigits(ms * 1e6)} ns`;
  if (ms * 1e3 < 999.5) return `${threeDigits(ms * 1e3)} µs`;
  return ms < 999.5 ? `${threeDigits(ms)} ms` : `${threeDigits(ms / 1e3)} s`;
}

// The unit in which a panel's times are read best, and the length of a millisecond in it.
function timeUnit(values) {
  const most = Math.max(...values);
  if (most < 1e-3) return { name: "ns", factor: 1e6 };
  if (most < 1) return { name: "µs", factor: 1e3 };
  return most < 1e4 ? { name: "ms", factor: 1 } : { name: "s", factor: 1e-3 };
}

function percent(fraction) {
  return `${(fraction * 100).toFixed(Math.abs(fraction) < 0.1 ? 1 : 0)} %`;
}

// `+12 %`, or `×3.4` where per cents say little.
function signedPercent(ratio) {
  if (ratio > 2 || ratio < 0.5) return `×${+ratio.toPrecision(2)}`;
  return (ratio >= 1 ? "+" : "−") + percent(Math.abs(ratio - 1));
}

// A tick, in few characters.
function tick(value) {
  const magnitude = Math.abs(value);
  if (magnitude >= 1e6) return `${+(value / 1e6).toPrecision(3)}M`;
  if (magnitude >= 1e4) return `${+(value / 1e3).toPrecision(3)}k`;
  return String(+value.toPrecision(4));
}

// A logarithmic axis: its ends a little outside the values, and at most seven ticks.
function logAxis(values, label) {
  const positive = values.filter((value) => value > 0);
  let [low, high] = [Math.min(...positive), Math.max(...positive)];
  const room = Math.max(Math.pow(high / low, 0.07), 1.12);
  [low, high] = [low / room, high * room];
  const decades = d3.range(Math.floor(Math.log10(low)), Math.ceil(Math.log10(high)) + 1);
  const inside = (ticks) => ticks.filter((value) => value >= low && value <= high);
  const steps = [[1, 2, 5], [1, 3], [1]].map((parts) => inside(decades.flatMap((d) => parts.map((p) => p * 10 ** d))));
  let ticks = steps.find((candidate) => candidate.length <= 7) ?? steps[2].filter((_, i) => i % 2 === 0);
  if (ticks.length < 3) ticks = inside(d3.ticks(low, high, 4));
  return { type: "log", domain: [low, high], ticks, tickFormat: tick, label };
}
