// The saved ledger as records: cuts, totals, programs, and the text of source lines.
"use strict";

(() => {
  const data = JSON.parse(document.getElementById("ledger").textContent);

  // The parts of a cut's time, in the order in which they pass.
  page.parts = [
    { name: "record", field: "record_s", colour: "var(--record)",
      says: "your Python ran and operations were recorded" },
    { name: "look up", field: "lookup_s", colour: "var(--lookup)",
      says: "the program was looked up by its key" },
    { name: "compile", field: "compile_s", colour: "var(--compile)",
      says: "no program had this key: traced and compiled by XLA" },
    { name: "transfer", field: "transfer_s", colour: "var(--transfer)",
      says: "inputs were moved to the device" },
    { name: "run", field: "run_s", colour: "var(--run)",
      says: "the program was launched (it runs asynchronously)" },
    { name: "blocked", field: "blocked_s", colour: "var(--blocked)",
      says: "the host waited for a value that was read" },
  ];

  const texts = ["cause", "detail", "line"].map((n) => data.columns.indexOf(n));
  const cuts = data.cuts.map((row, index) => {
    for (const i of texts) row[i] = data.strings[row[i]];
    const cut = { index };
    for (let i = 0; i < row.length; i += 1) cut[data.columns[i]] = row[i];
    return cut;
  });
  // A cut's parts as stretches of time: all end at `at`, but for the wait after it.
  let free = 0;
  for (const cut of cuts) {
    let start = cut.at;
    cut.stretches = [];
    for (const i of [4, 3, 2, 1, 0]) {
      const took = cut[page.parts[i].field];
      const from = i === 0 ? Math.min(Math.max(start - took, free), start) : start - took;
      if (took > 0) cut.stretches.push([i, from, start]);
      start = from;
    }
    cut.begins = start;
    free = cut.at + cut.blocked_s;
    if (cut.blocked_s > 0) cut.stretches.push([5, cut.at, free]);
    cut.ends = free;
  }

  const totals = data.cut_totals.slice().sort((a, b) => b.cuts - a.cuts);
  const causes = [...d3.rollup(totals, (t) => d3.sum(t, (c) => c.cuts), (t) => t.cause)]
    .sort((a, b) => b[1] - a[1])
    .map(([name, n], i) => ({ name, n, colour: `var(--cause-${i % 11})` }));
  const colours = new Map(causes.map((c) => [c.name, c.colour]));

  page.ledger = {
    data,
    cuts,
    totals,
    causes,
    steps: data.steps,
    wall: data.ended - data.started,
    cutCount: d3.sum(totals, (t) => t.cuts),
    programs: data.programs,
    program: new Map(data.programs.map((p) => [p.program, p])),
    colour: (cause) => colours.get(cause) || "var(--dim)",
  };

  page.source = (line) => data.sources[line] || "";
  page.file = (line) => line.slice(line.lastIndexOf("/") + 1);
  page.cost = (p) => p.trace_s + p.compile_s;

  const { h } = page;
  // A line of the user's code: where, and its text where the file could be read.
  page.place = (line) => {
    if (!line) return h("span", { class: "dim" }, "no line known");
    const text = page.source(line);
    return h("span", { class: "place" },
      h("span", { class: "where", title: line }, page.file(line)),
      text ? h("code", { class: "source" }, text)
        : h("span", { class: "dim" }, "(its text is not there)"));
  };
})();
