// The view Run: numbers of the whole run, its time line, and totals by cause.
"use strict";

(() => {
  const { h } = page;

  page.views.run = (root) => {
    const { ledger } = page;
    const detail = h("div", { class: "detail", id: "cut", "aria-live": "polite" });
    page.fill(root, tiles(ledger));
    if (!ledger.cuts.length) {
      root.append(page.note("Nothing was computed on the device “tarry”: there was ",
        "no cut."));
      return null;
    }
    const line = page.timeline(ledger, (cut) => page.fill(detail, cutDetail(cut, line)));
    page.add(root,
      page.note("Operations on the device are recorded, not computed. A ",
        h("b", {}, "cut"), " ends a recording and runs it as one program: a mark above ",
        "the line, coloured by its cause. Below, what the time before it went into."),
      h("div", { class: "card" },
        h("div", { class: "bar" }, modes(line), zooms(line)),
        partLegend(),
        line.canvas,
        causeLegend(ledger, line),
        detail),
      ledger.cuts.length < ledger.cutCount && page.note(
        `The last ${page.count(ledger.cuts.length)} of ${page.plural(ledger.cutCount,
          "cut")} are drawn; totals count all.`),
      h("div", { class: "pair" }, timeTable(ledger), stepTable(ledger, line)),
      causeTable(ledger),
      ledger.data.fallbacks.length > 0 && fallbackTable(ledger));
    page.fill(detail, h("p", { class: "dim" },
      "Click the line for a cut, or walk from cut to cut with ← and →. Once it is clicked, ",
      "scrolling over it zooms; drag to move."));
    return { shown: () => line.draw() };
  };

  function tiles(ledger) {
    const compiled = d3.sum(ledger.programs, page.cost);
    const misses = ledger.data.counters.UncachedCompile || 0;
    const hits = ledger.data.counters.CachedCompile || 0;
    const tile = (id, value, label) => h("div", { class: "tile", id: `tile-${id}` },
      h("b", {}, value), h("span", {}, label));
    return h("div", { class: "tiles" },
      tile("steps", page.count(ledger.steps), ledger.steps === 1 ? "step" : "steps"),
      tile("cuts", page.count(ledger.cutCount), ledger.cutCount === 1 ? "cut" : "cuts"),
      tile("programs", page.count(misses),
        `${misses === 1 ? "program" : "programs"} compiled`),
      tile("hits", page.share(hits, hits + misses), "of cuts found theirs in the cache"),
      tile("compiling", page.seconds(compiled), "compiling"),
      tile("wall", page.seconds(ledger.wall), "in all"));
  }

  function modes(line) {
    const make = (mode, label) => h("button", {
      type: "button", "aria-pressed": String(mode === "time"), onclick: (event) => {
        for (const b of event.target.parentNode.children) {
          b.setAttribute("aria-pressed", String(b === event.target));
        }
        line.setMode(mode);
      },
    }, label);
    return h("div", { class: "group", role: "group", "aria-label": "horizontal axis" },
      make("time", "by time"), make("steps", "by step"));
  }

  function zooms(line) {
    return h("div", { class: "group", role: "group", "aria-label": "zoom and walk" },
      page.button("−", "zoom out", () => line.zoomBy(0.5)),
      page.button("+", "zoom in", () => line.zoomBy(2)),
      page.button("all", "show all", () => line.all()),
      page.button("←", "cut before", () => line.next(-1)),
      page.button("→", "next cut", () => line.next(1)));
  }

  function partLegend() {
    return h("ul", { class: "legend" }, page.parts.map((p) =>
      h("li", { title: p.says }, page.swatch(p.colour), p.name)));
  }

  function causeLegend(ledger, line) {
    return h("div", { class: "legend", role: "group", "aria-label": "causes of cuts" },
      ledger.causes.map(({ name, n, colour }) => h("button", {
        type: "button", class: "cause", "aria-pressed": "true",
        title: "show or hide its marks",
        onclick: (event) => {
          const button = event.currentTarget;
          const hide = !line.hidden.delete(name);
          if (hide) line.hidden.add(name);
          button.setAttribute("aria-pressed", String(!hide));
          line.draw();
        },
      }, page.swatch(colour), `${name} (${page.count(n)})`)));
  }

  const cause = (c) => c.detail ? `${c.cause}: ${c.detail}` : c.cause;
  page.causeText = cause;

  function cutDetail(cut) {
    const program = page.ledger.program.get(cut.program);
    const spent = page.parts.map((p) => [p, cut[p.field]]).filter(([, s]) => s > 0);
    return [
      h("h2", {}, page.swatch(page.ledger.colour(cut.cause)),
        `Cut ${page.count(cut.index + 1)}: ${cause(cut)}`),
      h("p", {}, page.place(cut.line)),
      page.facts(
        ["at", `${cut.at.toFixed(4)} s, in step ${page.count(cut.step)}`],
        ["recorded", page.plural(cut.instructions, "instruction")],
        ["computed", page.plural(cut.outputs, "value")],
        ["program", program ? [
          h("a", { href: `#programs/${cut.program}` }, `#${cut.program}`),
          cut.compiled ? " (compiled here)" : " (from the cache)", " · ",
          h("a", { href: `#graph/${cut.program}` }, "graph"), " · ",
          h("a", { href: `#replay/${cut.program}` }, "replay")]
          : cut.program >= 0 && `#${cut.program}, no longer in the ledger`],
        ...spent.map(([p, s]) => [
          [page.swatch(p.colour), p.name], `${page.seconds(s)}: ${p.says}`])),
      cut.compiled && program && h("p", {}, h("b", {}, "Compiled because "),
        page.prose(program.why), "."),
    ];
  }

  function timeTable(ledger) {
    const took = ledger.data.seconds;
    const blocked = took.blocked || 0;
    const rows = page.parts.map((p) => {
      const s = took[p.field.replace("_s", "")] || 0;
      return [p, p.name === "record" ? Math.max(s - blocked, 0) : s];
    });
    const rest = ledger.wall - d3.sum(rows, ([, s]) => s);
    rows.push([{ name: "all else", colour: "transparent",
      says: "imports, and what came after the last cut" }, Math.max(rest, 0)]);
    return page.table("Where the time went", [
      ["part", ([p]) => page.swatched(p.colour, p.name)],
      ["time", ([, s]) => page.seconds(s), "right"],
      ["share", ([, s]) => page.share(s, ledger.wall), "right"],
      ["", ([p]) => h("span", { class: "dim" }, p.says)],
    ], rows);
  }

  function stepTable(ledger, line) {
    const cost = (c) => c.ends - c.begins;
    const dear = d3.sort(ledger.cuts, (c) => -cost(c)).slice(0, 8);
    return page.table("The dearest cuts", [
      ["step", (c) => page.count(c.step), "right"],
      ["time", (c) => page.seconds(cost(c)), "right"],
      ["most of it", (c) => {
        const [part] = d3.greatest(c.stretches, (s) => s[2] - s[1]) || [0];
        return page.swatched(page.parts[part].colour, page.parts[part].name);
      }],
      ["", (c) => h("button", { type: "button", class: "link",
        onclick: () => { line.choose(c); line.canvas.focus(); } }, "show")],
    ], dear);
  }

  function causeTable(ledger) {
    return page.table("Why the recording was cut", [
      ["cuts", (t) => page.count(t.cuts), "right"],
      ["share", (t) => page.share(t.cuts, ledger.cutCount), "right"],
      ["cause", (t) => [page.swatch(ledger.colour(t.cause)), cause(t)]],
      ["line", (t) => page.place(t.line)],
    ], ledger.totals);
  }

  function fallbackTable(ledger) {
    const dear = d3.sort(ledger.data.fallbacks, (a, b) => b.seconds - a.seconds);
    return page.table("Operators without a lowering, run on the CPU", [
      ["calls", (f) => page.count(f.calls), "right"],
      ["time", (f) => page.seconds(f.seconds), "right"],
      ["operator", (f) => h("code", {}, f.op)],
      ["line", (f) => page.place(f.line)],
    ], dear);
  }
})();
