// Operations in a tree of groups that open and close: by line or by module, so cut that
// no level has more than `WIDE` children.
"use strict";

(() => {
  const WIDE = 60;

  // A group: { id, label, sub, kind, children } or, of operations, { id, node }.
  page.groups = (graph, by) => {
    const operations = graph.nodes.filter((n) => !page.isInput(n));
    const found = by === "module" ? byModule(graph, operations) : byLine(operations);
    let next = 0;
    const number = (group) => {
      group.id = group.node ? `op${group.node.index}` : `group${next++}`;
      group.count = group.node ? 1 : d3.sum(group.children, number);
      for (const child of group.children || []) child.parent = group;
      return group.count;
    };
    const tree = [...inputGroups(graph), ...narrow(found), outputGroup(graph)];
    tree.filter((g) => !g.things).forEach(number);
    return tree.filter((g) => g.things ? g.things.length : true);
  };

  const leaf = (node) => ({ node });

  function byLine(operations) {
    const runs = [];
    for (const node of operations) {
      if (runs.at(-1)?.[0].line === node.line) runs.at(-1).push(node);
      else runs.push([node]);
    }
    const lots = runs.length <= WIDE ? runs
      : [...d3.group(operations, (n) => n.line).values()];
    return lots.map((nodes) => ({ label: page.file(nodes[0].line),
      sub: page.source(nodes[0].line), kind: "line", line: nodes[0].line,
      children: narrow(nodes.map(leaf)) }));
  }

  // An operation belongs to the module whose parameters it reads, itself or through
  // views; else to that of the first value it reads which the same line made.
  function byModule(graph, operations) {
    const owner = new Map();
    for (const node of graph.nodes) {
      if (page.isInput(node)) {
        owner.set(node.index, node.input.kind === "data" ? ""
          : page.moduleOf(node.input.name));
        continue;
      }
      const makers = [...new Set(node.reads)].map((v) => graph.nodes[graph.maker[v]]);
      const direct = new Set(makers.filter((m) => page.isInput(m) || m.isPart)
        .map((m) => owner.get(m.index)).filter(Boolean));
      const near = makers.find((m) => m.line === node.line && owner.get(m.index));
      owner.set(node.index, direct.size ? shared([...direct])
        : near ? owner.get(near.index) : "");
      node.isPart = node.op === "tarry::view" && direct.size > 0;
    }
    const runs = d3.group(operations, (n) => `${owner.get(n.index)}\n${n.line}`);
    return byPath([...runs.values()].map((nodes) => {
      const [name, { line }] = [owner.get(nodes[0].index), nodes[0]];
      return { name: name || page.file(line), label: name || page.file(line),
        sub: name ? page.file(line) : page.source(line), kind: name ? "module" : "line",
        line, children: narrow(nodes.map(leaf)) };
    }), 0);
  }

  // Too many modules in groups by the first parts of their names.
  function byPath(groups, depth) {
    const paths = groups.map((g) => g.kind === "line" ? [g.name] : g.name.split("."));
    const prefix = (i, n) => paths[i].slice(0, n).join(".");
    const deepest = d3.max(paths, (p) => p.length) || 0;
    if (groups.length <= WIDE || depth >= deepest) return groups;
    let n = depth + 1;
    const lots = (k) => d3.group(groups, (_, i) => prefix(i, k));
    while (n < deepest && lots(n + 1).size <= WIDE) n += 1;
    if (lots(n).size === 1) return byPath(groups, n);
    return [...lots(n)].map(([label, inner]) => inner.length === 1 ? inner[0] : {
      label, sub: page.plural(inner.length, "group"), kind: "module",
      children: narrow(byPath(inner, n)) });
  }

  function shared(names) {
    const paths = names.map((n) => n.split("."));
    const first = paths[0];
    let n = 0;
    while (n < first.length && paths.every((p) => p[n] === first[n])) n += 1;
    return first.slice(0, n).join(".");
  }

  // Long lists in chunks, chunks in chunks.
  function narrow(children) {
    if (children.length <= WIDE) return children;
    const size = Math.max(WIDE / 2, Math.ceil(children.length / (WIDE / 2)));
    return d3.range(0, children.length, size).map((from) => {
      const part = children.slice(from, from + size);
      const name = (g) => g.node ? g.node.op : g.label;
      return { label: `${name(part[0])} … ${name(part.at(-1))}`,
        sub: `${from + 1}–${from + part.length} of ${children.length}`, kind: "chunk",
        children: narrow(part) };
    });
  }

  // Groups of what comes in: things are { label, sub, nodes that read it }.
  function inputGroups(graph) {
    const kinds = Object.entries(page.inputKinds).map(([kind, label]) => ({
      id: `in-${kind}`, label, kind: "input",
      things: graph.inputs.filter((i) => i.kind === kind).map((input) => ({
        id: `input${input.place}`, input, kind: "input", node: input.node,
        label: input.name || `value from ${page.file(input.made) || "before"}`,
        sub: input.node.specs[0], donated: input.donated, to: input.node.users })),
    }));
    const numbers = graph.nodes.flatMap((node) => node.numbers.map((number, i) => ({
      id: `number${node.index}-${i}`, number, kind: "number", node,
      label: number.name || page.kind(number),
      sub: `${page.kind(number)} of ${node.op}`, to: [node.index] })));
    const [seeds, scalars] = [true, false].map((seed) =>
      numbers.filter((n) => page.isSeed(n.number) === seed));
    return [...kinds,
      { id: "in-scalars", label: "Scalars (run-time numbers)", kind: "number",
        things: scalars },
      { id: "in-seeds", label: "Random seeds and draws", kind: "seed", things: seeds }];
  }

  function outputGroup(graph) {
    return { id: "outputs", label: "Outputs", kind: "output",
      things: graph.outputs.map((output, i) => ({
        id: `output${i}`, output, kind: "output", node: output.node,
        label: output.name || `value from ${page.file(output.node.line)}`,
        sub: output.spec, from: output.node.index })) };
  }
})();
