// How two programs' keys differ, part by part in the order in which a key is folded:
// donation, environment, then the graph's outputs, inputs and operations.
"use strict";

(() => {
  const MOST = 800;  // edits after which the rest counts as replaced

  // Pairs [i, j] of equal places of two lists, in order (Myers' greedy algorithm).
  page.align = (a, b) => {
    let start = 0, x = a.length, y = b.length;
    while (start < x && start < y && a[start] === b[start]) start += 1;
    while (x > start && y > start && a[x - 1] === b[y - 1]) { x -= 1; y -= 1; }
    const pairs = d3.range(start).map((i) => [i, i]);
    for (const [i, j] of middle(a.slice(start, x), b.slice(start, y))) {
      pairs.push([i + start, j + start]);
    }
    for (let i = x; i < a.length; i += 1) pairs.push([i, i - x + y]);
    return pairs;
  };

  function middle(a, b) {
    const most = Math.min(a.length + b.length, MOST);
    const trace = [];
    let reached = new Map([[1, 0]]);
    for (let d = 0; d <= most; d += 1) {
      trace.push(new Map(reached));
      for (let k = -d; k <= d; k += 2) {
        const down = k === -d
          || (k !== d && (reached.get(k - 1) ?? -1) < (reached.get(k + 1) ?? -1));
        let x = down ? reached.get(k + 1) : reached.get(k - 1) + 1;
        while (x < a.length && x - k < b.length && a[x] === b[x - k]) x += 1;
        reached.set(k, x);
        if (x >= a.length && x - k >= b.length) return back(trace, a.length, b.length);
      }
    }
    return [];
  }

  function back(trace, x, y) {
    const pairs = [];
    for (let d = trace.length - 1; d >= 0 && (x > 0 || y > 0); d -= 1) {
      const k = x - y, reached = trace[d];
      const down = k === -d
        || (k !== d && (reached.get(k - 1) ?? -1) < (reached.get(k + 1) ?? -1));
      const from = down ? reached.get(k + 1) : reached.get(k - 1) + 1;
      while (x > Math.max(from, 0) && y > 0 && x > 0 && (d === 0 || x > from)) {
        x -= 1; y -= 1;
        pairs.push([x, y]);
      }
      if (d > 0) {
        if (down) y -= 1;
        else x -= 1;
      }
    }
    return pairs.reverse();
  }

  // Rows { sign, old, new, line }: " " equal, "-" only before, "+" only now,
  // "~" the same operation on other values.
  page.difference = (before, now) => {
    const parts = [];
    const was = new Map(before.key), is = new Map(now.key);
    const a = page.graph(before), b = page.graph(now);
    parts.push({ name: "donation", rows: donation(was, is, a, b) });
    const names = [...new Set([...was.keys(), ...is.keys()])]
      .filter((n) => n !== "donation");
    parts.push({ name: "environment", rows: names.flatMap((n) =>
      lines(n.replace("environment: ", ""), was.get(n), is.get(n))) });
    if (!a || !b) return parts;
    const inputs = listed(a.inputs.map(inputItem), b.inputs.map(inputItem));
    const rows = operations(a, b);
    // Where all else is equal, outputs differ by which values they are.
    const exact = [...inputs, ...rows].every((r) => r.sign === " ");
    const item = (o) => outputItem(o, exact);
    parts.push({ name: "graph: outputs",
      rows: listed(a.outputs.map(item), b.outputs.map(item)) });
    parts.push({ name: "graph: inputs", rows: inputs });
    parts.push({ name: "graph: operations", rows });
    return parts;
  };

  // Items { held, text, line }: `held` is what the key holds; the text, with the name
  // that the reader knows, finds the partner.
  const named = (thing) => thing.name || "unnamed";
  const inputText = (i) => `${named(i)} ${i.node.specs[0]}`;
  const inputItem = (i) => ({ held: i.node.specs[0], text: inputText(i),
    line: i.made || i.node.line });
  const outputItem = (o, exact) => ({
    held: `${exact ? o.value : ""} ${o.spec} ${o.node.op}`,
    text: `${exact ? `%${o.value} ` : ""}${named(o)} ${o.spec}, made by ${o.node.op}`,
    line: o.node.line });

  function lines(name, old, now) {
    const text = (value) => `${name}: ${value === "" ? "none" : value}`;
    if (old === now) return [{ sign: " ", old: text(old), new: text(now) }];
    return [
      ...(old === undefined ? [] : [{ sign: "-", old: text(old) }]),
      ...(now === undefined ? [] : [{ sign: "+", new: text(now) }])];
  }

  function donation(was, is, a, b) {
    const items = (key, graph) => {
      const places = (key.get("donation") || "").split(", ").filter(Boolean);
      return places.map((p) => ({ held: p, text: graph?.inputs[p]
        ? `input ${p} (${inputText(graph.inputs[p])})` : `input ${p}` }));
    };
    return listed(items(was, a), items(is, b));
  }

  // Equal rows stay, others come or go; a row under another name is equal if the key
  // holds the same.
  function listed(a, b) {
    const rows = [];
    const equal = (x, y) => rows.push({ sign: " ", old: x.text, new: y.text,
      line: y.line });
    let [i, j] = [0, 0];
    const rest = (x, y) => {
      for (; i < x && j < y && a[i].held === b[j].held; i += 1, j += 1) equal(a[i], b[j]);
      for (; i < x; i += 1) rows.push({ sign: "-", old: a[i].text, line: a[i].line });
      for (; j < y; j += 1) rows.push({ sign: "+", new: b[j].text, line: b[j].line });
    };
    for (const [x, y] of page.align(a.map((r) => r.text), b.map((r) => r.text))) {
      rest(x, y);
      equal(a[x], b[y]);
      [i, j] = [x + 1, y + 1];
    }
    rest(a.length, b.length);
    return rows;
  }

  function operations(a, b) {
    const [xs, ys] = [a, b].map((g) => g.nodes.filter((n) => !page.isInput(n)));
    const rows = [];
    const twin = new Map();  // value before -> value now
    const [ins, outs] = [a.inputs.map(inputText), b.inputs.map(inputText)];
    for (const [i, j] of page.align(ins, outs)) {
      twin.set(a.inputs[i].node.base, b.inputs[j].node.base);
    }
    let [i, j] = [0, 0];
    const rest = (x, y) => {
      for (; i < x; i += 1) rows.push(row("-", xs[i], null));
      for (; j < y; j += 1) rows.push(row("+", null, ys[j]));
    };
    for (const [x, y] of page.align(xs.map(page.signature), ys.map(page.signature))) {
      rest(x, y);
      const [old, now] = [xs[x], ys[y]];
      const same = old.reads.every((v, n) =>
        !twin.has(v) || twin.get(v) === now.reads[n]);
      old.values.forEach((v, n) => twin.set(v, now.values[n]));
      rows.push(row(same ? " " : "~", old, now));
      [i, j] = [x + 1, y + 1];
    }
    rest(xs.length, ys.length);
    return rows;
  }

  function row(sign, old, now) {
    return { sign, old: old && page.spelled(old), new: now && page.spelled(now),
      line: (now || old).line };
  }
})();
