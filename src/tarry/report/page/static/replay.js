// One recording as stages that can be stepped through: each operation, then what the
// cut does with them. Here is what each stage says; `replay_view.js` shows it.
"use strict";

(() => {
  const { h } = page;
  const KEYS = ["donation", "environment", "outputs", "inputs", "operations"];

  page.replayOf = (program) => {
    const recording = page.recording(program);
    if (!recording) return null;
    const graph = page.graph(program);
    const { nodes } = recording;
    const cut = page.ledger.cuts.find((c) => c.program === program.program && c.compiled)
      || page.ledger.cuts.find((c) => c.program === program.program);
    const stages = [
      { name: "start" },
      ...nodes.map((node) => ({ name: "op", node })),
      { name: "cut" }, { name: "dead" },
      ...KEYS.map((part) => ({ name: "key", part })),
      { name: "look" }, { name: "run" },
    ];
    const replay = { program, recording, graph, nodes, cut, stages,
      lines: linesOf(nodes), kept: nodes.filter((n) => n.kept).length };
    replay.at = (i) => placeOf(replay, i);
    replay.parts = keyParts(replay);
    return replay;
  };

  // The lines in the order in which they first recorded, with the rows of each.
  function linesOf(nodes) {
    const groups = d3.group(nodes, (n) => n.line);
    return [...groups].map(([line, rows]) => ({ line, rows: rows.map((n) => n.index) }));
  }

  // How far stage `i` is: operations recorded, whether cut, what is folded, and so on.
  function placeOf(replay, i) {
    const stage = replay.stages[i], n = replay.nodes.length;
    const after = i - n;
    return {
      index: i, stage,
      recorded: Math.min(i, n),
      current: stage.name === "op" ? stage.node : null,
      cut: after >= 1, settled: after >= 2,
      folded: Math.max(0, Math.min(after - 2, KEYS.length)),
      done: stage.name === "run",
    };
  }

  const name = (thing) => thing.name || "unnamed";

  function keyParts(replay) {
    const { program, graph } = replay;
    const entries = program.key.filter(([n]) => n !== "donation");
    const donated = graph ? graph.inputs.filter((i) => i.donated) : [];
    const operations = graph ? graph.nodes.filter((n) => !page.isInput(n)) : [];
    return [
      { name: "donation", lines: donated.map((i) =>
        `input ${i.place}: ${name(i)} ${i.node.specs[0]}`) },
      { name: "environment", lines: entries.map(([n, value]) =>
        `${n.replace("environment: ", "")} = ${value || "none"}`) },
      { name: "outputs", lines: (graph?.outputs || []).map((o) =>
        `%${o.value} ${o.spec}`) },
      { name: "inputs", lines: (graph?.inputs || []).map((i) =>
        `%${i.node.base} = input ${i.place}: ${i.node.specs[0]}`) },
      { name: "operations", lines: operations.map(page.spelled) },
    ];
  }

  const SAYS = {
    start: (r) => ["Nothing is recorded yet",
      "On the device “tarry” an operation is not computed when your line runs. tarry " +
      "writes it down, as one instruction, and gives back a tensor that has a shape " +
      "and a dtype but no value yet: it is lazy.",
      `This recording goes on for ${page.plural(r.nodes.length, "instruction")} of ` +
      `${page.plural(r.lines.length, "line")}. Step on with →.`],
    op: operation,
    cut: (r) => ["The cut",
      r.cut ? `Here a value is wanted (${page.causeText(r.cut)}), so the recording ends.`
        : "Here a value is wanted, so the recording ends.",
      "tarry looks which tensors your program still holds: every pending value that is " +
      `alive becomes an output. Of ${page.count(r.recording.maker.length)} values ` +
      `${page.count(r.recording.alive.size)} are alive and pending.`,
      "They are all computed at once, not only the one that was asked for: a second " +
      "read soon after costs nothing."],
    dead: (r) => ["What nobody needs is not computed",
      "From the outputs tarry walks back through what they read. " +
      `${page.plural(r.kept, "instruction")} ${r.kept === 1 ? "is" : "are"} reached; ` +
      `${page.count(r.nodes.length - r.kept)} ${r.nodes.length - r.kept === 1
        ? "is" : "are"} not: their results are dead, and they are dropped.`,
      "Values in between that no tensor holds are not kept: XLA may fuse them away."],
    key: (r, stage) => KEY[stage.part](r),
    look: (r) => ["The program is looked up by its key",
      r.cut?.compiled ? `No program had this key: it is compiled. Why: ${r.program.why}.`
        : "A program has this key: it is taken from the cache.",
      r.program.advice ? `What to do: ${r.program.advice}.` : "",
      `Compiling cost ${page.seconds(page.cost(r.program))}. The same recording was ` +
      `cut ${page.plural(r.program.uses, "time")} in this run; all but the first found ` +
      "this program by its key, or at once by the path of the recording."],
    run: (r) => ["The program runs",
      "Inputs in host memory are uploaded, the program is launched, and your Python goes " +
      "on: the device computes meanwhile. Every output is now a device buffer that its " +
      "tensor holds.",
      r.program.donated ? `${page.plural(r.program.donated, "input buffer")} ` +
      `${r.program.donated === 1 ? "was" : "were"} donated: outputs may be written there, ` +
      "so that weights are updated in place." : "No input buffer was donated.",
      "The next recording begins, empty. What survives here may be an input of it."],
  };

  const KEY = {
    donation: () => ["The key begins: donation",
      "Everything that the compiled program depends on goes into its key, part by part, " +
      "and nothing else does. First: which inputs' buffers may be overwritten, because " +
      "their tensor has a new value and nothing else holds the old one."],
    environment: () => ["The key goes on: environment",
      "Platform, versions and options: a program compiled under others is another one."],
    outputs: () => ["The key goes on: outputs",
      "Which values are computed. A tensor kept alive once more is one more output, and " +
      "so another program."],
    inputs: () => ["The key goes on: inputs",
      "Shape and dtype of every input, in order; never the contents. Another batch size " +
      "is another key, other numbers in the same shape are not."],
    operations: () => ["The key ends: operations, line by line",
      "What is computed from what. Python numbers stand in it by their kind (float, " +
      "int), not their value: a learning rate may change at every step. Names and " +
      "source lines are not part of it."],
  };

  page.says = (replay, place) => {
    const [title, ...sentences] = SAYS[place.stage.name](replay, place.stage);
    return { title, sentences: sentences.filter(Boolean) };
  };

  // What recording one operation means.
  function operation(replay, { node }) {
    const line = replay.lines.find((l) => l.line === node.line);
    const nth = line.rows.indexOf(node.index) + 1;
    const said = [...kindOf(replay, node)];
    if (!node.kept) {
      said.push("In the end nothing that is alive needs it: the cut will drop it.");
    }
    const where = line.rows.length === 1 ? "its only instruction"
      : `instruction ${nth} of ${page.count(line.rows.length)} of this line`;
    return [`${page.file(node.line)}: ${where}`, ...said];
  }

  function kindOf({ recording }, node) {
    const result = `${page.results(node)} (${node.specs.join(", ")})`;
    if (page.isInput(node)) {
      const { input } = node.twin || {};
      const who = input?.name ? input.name : "a value";
      return [
        `Your line reads ${who}, which was there before this recording began. It ` +
        `becomes an input, ${result}: the program will know its shape and dtype, and ` +
        "get its contents when it runs.",
        input?.host === true ? "It lies in host memory: the cut uploads it."
          : input?.host === false ? "It lies in a device buffer already." : ""];
    }
    if (node.op === "tarry::empty") {
      return [`A tensor without contents is made, ${result}. If data is copied into it ` +
        "from the CPU, the copy takes its place, and it is no longer needed."];
    }
    if (node.op === "tarry::view") {
      return [`A view: ${result} are the elements of %${node.reads[0]} in another shape ` +
        "or order. Nothing is copied; in the program it is a reshape, slice or transpose."];
    }
    if (node.op === "tarry::write") {
      return [`A write into a part of a tensor: ${result} is its value with the new part ` +
        "put in. Who read the old value still gets the old one."];
    }
    return plain(node, result);
  }

  function plain(node, result) {
    const reads = [...new Set(node.reads)].map((v) => `%${v}`);
    const said = [`Nothing is computed: one instruction is appended. Its result ${result} ` +
      "is pending" + (reads.length ? `, to be made from ${page.shorten(reads.join(", "),
        60)} when it is needed.` : ".")];
    const seeds = node.numbers.filter(page.isSeed);
    const scalars = node.numbers.filter((n) => !page.isSeed(n));
    if (node.op === "tarry::map") {
      said.push("It is one instruction for a whole list of tensors, as an optimizer's.");
    }
    if (scalars.length) {
      const kinds = [...new Set(scalars.map((n) =>
        n.name ? `${n.name} (${page.kind(n)})` : page.kind(n)))];
      said.push(`A number goes in as an input (${kinds.join(", ")}): another value is ` +
        "no other program.");
    }
    if (seeds.length) {
      said.push("It is random: the seed and the count of draws are inputs, so every step " +
        "draws anew with the same program.");
    }
    return said;
  }

  // The state of a value at a stage, as [word, class, explanation].
  page.stateOf = (replay, place, value) => {
    const { recording } = replay;
    const node = replay.nodes[recording.maker[value]];
    const input = page.isInput(node);
    const alive = recording.alive.has(value);
    if (place.done) {
      if (alive) return ["DEVICE", "device", "computed; its tensor holds a device buffer"];
      if (input && node.twin?.input.donated) {
        return ["donated", "dead", "its buffer went to an output"];
      }
      if (input) return ["DEVICE", "device", "kept as it was, for who holds it"];
      return ["gone", "dead", node.kept ? "was computed in passing, if at all"
        : "was never computed"];
    }
    if (input) {
      const { host } = node.twin?.input || {};
      if (host === undefined) return ["input", "device", "has a value: an input"];
      return host ? ["HOST", "host", "a copy in host memory, an input"]
        : ["DEVICE", "device", "a device buffer, an input"];
    }
    if (place.cut && alive) return ["output", "output", "alive at the cut: an output"];
    if (place.settled && !node.kept) return ["dead", "dead", "needed by nobody: dropped"];
    if (place.cut) return ["between", "pending", "no tensor holds it"];
    const kind = node.op === "tarry::view" ? "view" : "IR";
    return [kind, "pending", kind === "view" ? `a view of %${node.reads[0]}, pending`
      : "pending: an instruction, no value yet"];
  };

  // Values that matter at a stage, newest first: made, and read later or held at the cut.
  page.liveAt = (replay, place) => {
    const { recording } = replay;
    const found = [];
    for (let v = recording.maker.length - 1; v >= 0; v -= 1) {
      if (recording.maker[v] >= place.recorded) continue;
      const later = recording.last[v] >= place.recorded;
      const fresh = place.current?.values.includes(v);
      if (place.cut || later || fresh || recording.alive.has(v)) found.push(v);
    }
    if (!place.cut) return found;
    const rank = (v) => recording.alive.has(v) ? 0
      : page.isInput(replay.nodes[recording.maker[v]]) ? 1 : 2;
    return d3.sort(found, (a, b) => rank(a) - rank(b) || a - b);
  };

})();
