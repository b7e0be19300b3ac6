// Figures in words, for tips and tables.

const micros = (us) => milliseconds(us / 1e3);
const signedMicros = (us) => `${us < 0 ? "−" : "+"}${micros(Math.abs(us))}`;
const megabytes = (bytes) => `${threeDigits(bytes / 1e6)} MB`;
const count = (value) => threeDigits(value).replace(/\.0+$/, "");

function rounded(value) {
  const [size, unit] = [[1e9, " G"], [1e6, " M"], [1e3, " k"]].find(([least]) => value >= least) ?? [1, ""];
  return threeDigits(value / size).replace(size === 1 ? /\.0+$/ : "", "") + unit;
}

// An upper bound is rounded up, except for the rounding error of the product.
const below = (bound) => { const steps = bound < 0.1 ? 1000 : 100; return `< ${percent(Math.ceil(bound * steps - 1e-9) / steps)}`; };
const shareOf = (row, one) => (row.share === undefined ? below((row.corrected_upper_us ?? 2 * one.cost_per_operator_us * row.executions) / one.plain_us) : percent(row.share));
const isHidden = (row) => row.kind === "outside" && row.share === undefined;
const boundsOf = (row) => (row.corrected_lower_us === undefined ? "" : `${threeDigits(row.corrected_lower_us)} … ${threeDigits(row.corrected_upper_us)}`);

// What is known about a row besides its names.
function facts(row, one) {
  const speed = [
    row.flops !== undefined && `${rounded(row.flops)} FLOPs`,
    row.gflops_per_second !== undefined && `${threeDigits(row.gflops_per_second)} GFLOP/s`,
    row.roofline_fraction !== undefined && `${percent(row.roofline_fraction)} of the roofline`,
    row.bound && `bound by ${row.bound}`,
  ].filter(Boolean).join(", ");
  const lines = [
    `${isHidden(row) ? "unknown" : micros(row.corrected_us)}, ${shareOf(row, one)} of the call`,
    boundsOf(row) && `between ${micros(row.corrected_lower_us)} and ${micros(row.corrected_upper_us)}`,
    row.kind !== "outside" && `${count(row.executions)} ${row.executions === 1 ? "execution" : "executions"} per call; ${micros(row.raw_us)} with the profiler's cost`,
    speed,
    row.memory_bytes !== undefined && `memory ${megabytes(row.memory_bytes)}`,
    row.busy_fraction !== undefined && `threads busy ${percent(row.busy_fraction)} of the time`,
  ];
  return lines.filter(Boolean).join("\n");
}

const nameOf = (row) => [row.module, [row.operator, row.kernel].filter(Boolean).join(" · "), row.node && row.node !== row.module ? `node ${row.node}` : null]
  .filter(Boolean).join("\n");

const operatorsOf = (rows, side) => [...new Set(rows.filter((one) => one.side === side).map(({ row }) => row.operator.replace(/^aten::/, "")))].join(", ");

// A node of the tree of one case, or of two.
function told(node, shown) {
  const rows = rowsOf(node);
  if (shown.length === 2) {
    const [a, b] = node.us;
    const operators = node.kind === "module" ? [] : [`${operatorsOf(rows, 0) || "nothing"} → ${operatorsOf(rows, 1) || "nothing"}`];
    const ratio = a > 0 && b > 0 ? `, ${(b / a).toFixed(2)} × A` : "";
    return [node.path, ...operators, `A ${micros(a)}, B ${micros(b)}: ${signedMicros(b - a)}${ratio}`].join("\n");
  }
  const [one] = shown;
  if (one.is_stacks) {
    const samples = rows.reduce((sum, { row }) => sum + row.samples, 0);
    return `${node.name}\n${samples} ${samples === 1 ? "sample" : "samples"}, ${percent(node.us[0] / one.plain_us)}`;
  }
  if (rows.length === 1 && node.kind !== "module") return `${nameOf(rows[0].row)}\n${facts(rows[0].row, one)}`;
  return `${node.path}\n${micros(node.us[0])}, ${percent(node.us[0] / one.plain_us)} of the call, in ${rows.length} ${rows.length === 1 ? "row" : "rows"}`;
}
