// The time of a case as a tree of modules, operators and kernels; for two cases, of modules and kinds of operators.
//
// A node has the time in each case. It is as wide as the longer time, or as its children together if that is more.

function makeNode(name, kind, parent, cases) {
  return { name, kind, parent, us: new Array(cases).fill(0), rows: [], byName: new Map(), path: parent?.parent ? `${parent.path}.${name}` : name };
}

function treeOf(shown) {
  const root = makeNode(shown.map((one) => one.name).join(" ↔ "), "module", null, shown.length);
  const isMapped = shown.some((one) => one.rows.some((row) => row.module));
  // A time that is unknown in one of two cases has no difference.
  const hasHidden = shown.length === 2 && shown.some((one) => one.rows.some(isHidden));
  shown.forEach((one, side) => {
    for (const row of one.rows) {
      if (hasHidden && row.kind === "outside") continue;
      const unmapped = isMapped && row.kind !== "outside" ? ["no known module"] : [];
      const modules = (row.frames ?? (row.module ? row.module.split(".") : unmapped)).map((name) => [name, "module"]);
      const operators = row.frames ? [] : shown.length === 1 ? [row.operator, row.kernel].filter(Boolean) : [row.kind.replace("-", " ")];
      let node = root;
      node.us[side] += row.corrected_us;
      for (const [name, kind] of [...modules, ...operators.map((name) => [name, row.kind])]) {
        const key = `${kind === "module"} ${name}`;
        if (!node.byName.has(key)) node.byName.set(key, makeNode(name, kind, node, shown.length));
        node = node.byName.get(key);
        node.us[side] += row.corrected_us;
      }
      node.rows.push({ side, row });
    }
  });
  // Hidden time stays an empty part of the whole call.
  if (hasHidden) root.us = shown.map((one) => one.plain_us);
  fold(root);
  measure(root);
  place(root, 0, 0);
  return root;
}

// A module that contains only another module becomes one node with it.
function fold(node) {
  node.children = [...node.byName.values()];
  for (const [index, given] of node.children.entries()) {
    let child = given;
    while (child.kind === "module" && child.rows.length === 0 && child.byName.size === 1 && [...child.byName.values()][0].kind === "module") {
      const [only] = child.byName.values();
      child = Object.assign(only, { name: `${child.name}.${only.name}`, parent: node });
    }
    node.children[index] = child;
    fold(child);
  }
}

function measure(node) {
  node.children.forEach(measure);
  node.size = Math.max(0, ...node.us, node.children.reduce((sum, child) => sum + child.size, 0));
}

// Sets the left end (in microseconds) and the depth of each node, and the greatest depth below it.
function place(node, left, depth) {
  Object.assign(node, { left, depth });
  node.deepest = depth;
  let at = left;
  for (const child of node.children) {
    place(child, at, depth + 1);
    at += child.size;
    node.deepest = Math.max(node.deepest, child.deepest);
  }
}

function allNodes(node) {
  return [node, ...node.children.flatMap(allNodes)];
}

function rowsOf(node) {
  return [...node.rows, ...node.children.flatMap(rowsOf)];
}
