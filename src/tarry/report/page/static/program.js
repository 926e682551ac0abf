// What a program's rows say: who makes and who reads each value, which inputs are
// what, which operations the outputs need, and how an operation is spelled.
"use strict";

(() => {
  const INPUT = "tarry::input";
  const LISTED = 500;  // programs in the menu: the most used
  const NUMBERS = { b: "bool", i: "int", f: "float", c: "complex" };

  page.isInput = (node) => node.op === INPUT;

  // Rows [operation, arguments, results, line] as nodes; values are numbered through.
  page.nodes = (rows) => {
    const maker = [];
    const nodes = rows.map(([op, args, specs, line], index) => {
      const node = { index, op, args, specs, line, base: maker.length, users: [] };
      node.values = specs.map(() => maker.push(index) - 1);
      node.reads = [];
      node.numbers = [];
      collect(args, node);
      return node;
    });
    for (const node of nodes) {
      for (const value of new Set(node.reads)) {
        nodes[maker[value]]?.users.push(node.index);
      }
    }
    return { nodes, maker };
  };

  function collect(arg, node) {
    if (typeof arg === "number") node.reads.push(arg);
    else if (Array.isArray(arg)) for (const a of arg) collect(a, node);
    else if (arg && typeof arg === "object") node.numbers.push(arg);
  }

  page.kind = (number) => NUMBERS[number.number] || `0-d ${number.number}`;
  page.isSeed = (number) => number.name === "seed" || number.name === "draw";

  // `aten::relu(%4)`
  page.spell = (node) => page.isInput(node) ? "input"
    : `${node.op}(${geometry(node) || node.args.map(spell).join(", ")})`;

  // A view or write says where: (shape, strides, offset, dtype), after the base's spec.
  const PLACE = /^\((\([\d, ]*\)), (\([\d, ]*\)), (\d+), torch\.\w+\)$/;

  function geometry({ op, args, reads }) {
    const place = /^tarry::(view|write)$/.test(op) && PLACE.exec(args.at(-1));
    return place && [...reads.map(spell), `shape ${place[1]}`, `strides ${place[2]}`,
      `offset ${place[3]}`].join(", ");
  }

  function spell(arg) {
    if (typeof arg === "number") return `%${arg}`;
    if (Array.isArray(arg)) return `[${arg.map(spell).join(", ")}]`;
    if (arg === null) return "none";
    if (typeof arg === "object") {
      return arg.name ? `${arg.name}: ${page.kind(arg)}` : page.kind(arg);
    }
    return arg;
  }

  // What the key holds of an operation, but which values it reads: equal where two
  // programs have the same operation at another place. Shapes of results follow from
  // the operands', so they count only where there are none, or tarry's own row made them.
  page.signature = (node) => {
    const own = node.op.startsWith("tarry::") || !node.reads.length;
    const results = own ? node.specs : node.specs.map((s) => s.split("[")[0]);
    return JSON.stringify([node.op, blank(node.args), results]);
  };

  function blank(arg) {
    if (typeof arg === "number") return 0;
    return Array.isArray(arg) ? arg.map(blank) : arg;
  }

  page.results = (node) =>
    `${node.values.map((v) => `%${v}`).join(", ")}`;

  page.spelled = (node) =>
    `${page.results(node)} = ${page.spell(node)} → ${node.specs.join(", ")}`;

  const KINDS = {
    parameter: "Parameters and buffers",
    state: "Optimizer state",
    gradient: "Gradients",
    data: "Data and other values",
  };
  page.inputKinds = KINDS;

  page.kindOf = (name) => {
    if (!name) return "data";
    if (/^\w+'s \w+ of /.test(name)) return "state";
    return name.endsWith(".grad") ? "gradient" : "parameter";
  };

  // `Net.body.0` of `Net.body.0.weight`, of its gradient, and of an optimizer's state.
  page.moduleOf = (name) =>
    name.replace(/^\w+'s \w+ of /, "").replace(/\.grad$/, "").replace(/\.[^.]*$/, "");

  const known = new Map();

  // The graph of a program, or null where the ledger has none.
  page.graph = (program) => {
    if (!program.graph) return null;
    if (known.has(program)) return known.get(program);
    const { nodes, maker } = page.nodes(program.graph.nodes);
    const inputs = nodes.filter(page.isInput).map((node, i) => {
      const said = program.graph.inputs[i] || {};
      node.input = {
        node, place: i, name: said.name || "", made: said.made || "",
        donated: Boolean(said.donated), host: said.host, kind: page.kindOf(said.name),
      };
      return node.input;
    });
    const outputs = program.graph.outputs.map((value, i) => {
      const name = program.graph.output_names[i] || "";
      const node = nodes[maker[value]];
      return { value, name, node, kind: page.kindOf(name),
        spec: node.specs[value - node.base] };
    });
    const found = { nodes, maker, inputs, outputs };
    known.set(program, found);
    return found;
  };

  // The recording a program was cut from: `kept` says which rows the outputs need,
  // `alive` which values were held at the cut. Kept rows are the graph's, in order.
  page.recording = (program) => {
    if (!program.replay) return null;
    const { nodes, maker } = page.nodes(program.replay.rows);
    const alive = new Set(program.replay.alive);
    const graph = page.graph(program);
    const needed = new Set(alive);
    for (const node of nodes.toReversed()) {
      node.kept = node.values.some((v) => needed.has(v));
      if (node.kept) for (const v of node.reads) needed.add(v);
    }
    let place = 0;
    for (const node of nodes) {
      if (!node.kept) continue;
      node.twin = graph?.nodes[place];
      place += 1;
    }
    const names = new Map();
    program.replay.alive.forEach((v, i) => names.set(v, graph?.outputs[i]?.name || ""));
    for (const node of nodes) {
      if (node.twin?.input?.name) names.set(node.base, node.twin.input.name);
    }
    const last = maker.map(() => -1);
    for (const node of nodes) for (const v of node.reads) last[v] = node.index;
    return { nodes, maker, alive, names, last };
  };

  // The program of that number, or the one that was used most.
  page.chosen = (number) => page.ledger.program.get(number)
    || d3.greatest(page.ledger.programs, (p) => p.uses);

  // The menu of programs that Graph and Replay share.
  page.menu = (chosen, view) => {
    const { h } = page;
    const { programs } = page.ledger;
    const listed = programs.length <= LISTED ? programs
      : d3.sort(new Set([page.chosen(chosen),
        ...d3.sort(programs, (p) => -p.uses).slice(0, LISTED)]), (p) => p.program);
    const select = h("select", {
      "aria-label": "program",
      onchange: () => page.go(view, Number(select.value)),
    }, listed.map((p) => h("option",
      { value: p.program, selected: p.program === chosen },
      `#${p.program} · ${page.plural(p.instructions, "operation")} · ` +
      `${page.plural(p.uses, "use")} · ${page.shorten(page.file(p.line), 40)}`)));
    return h("label", { class: "menu" }, "Program ", select);
  };
})();
