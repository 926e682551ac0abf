// The view Programs: all compiled programs, and one in full: why, what to do, cost,
// memory, key, and how its key differs from the nearest one before it.
"use strict";

(() => {
  const { h } = page;
  const MEMORY = {
    argument: "inputs", output: "outputs", alias: "outputs in inputs' buffers (donated)",
    temp: "temporary", generated_code: "code", peak_memory: "peak",
  };

  page.views.programs = (root) => {
    const { ledger } = page;
    if (!ledger.programs.length) {
      page.fill(root, page.note("No program was compiled."));
      return null;
    }
    const detail = h("div", { id: "program", class: "detail card" });
    const list = h("div", { id: "programs" });
    page.fill(root,
      page.note("A program is what a cut computes, compiled once by XLA and found again ",
        "by its ", h("b", {}, "key"), ". A cut whose key no program has costs a compile: ",
        "each row says why there was none."),
      h("div", { class: "master" }, list, detail));
    let order = "cost";
    const orders = {
      cost: ["dearest first", (p) => -page.cost(p)],
      first: ["in order", (p) => p.program],
      uses: ["most used first", (p) => -p.uses],
    };
    const showList = () => page.fill(list,
      h("div", { class: "bar" }, h("label", {}, "Order ", h("select", {
        onchange: (e) => { order = e.target.value; showList(); },
      }, Object.entries(orders).map(([name, [label]]) =>
        h("option", { value: name, selected: name === order }, label))))),
      programTable(d3.sort(ledger.programs, orders[order][1])));
    showList();
    return {
      shown: (number) => {
        const program = page.chosen(number);
        page.fill(detail, programDetail(program));
        mark(list, program.program);
        return program.program;
      },
    };
  };

  function mark(list, number) {
    for (const link of list.querySelectorAll("a[data-program]")) {
      const chosen = Number(link.dataset.program) === number;
      link.closest("tr").classList.toggle("chosen", chosen);
      if (chosen) link.setAttribute("aria-current", "true");
      else link.removeAttribute("aria-current");
    }
  }

  function programTable(programs) {
    const dearest = d3.max(programs, page.cost) || 1;
    return page.table(page.plural(programs.length, "program"), [
      ["program", (p) => h("a", { href: `#programs/${p.program}`,
        "data-program": p.program }, `#${p.program}`)],
      ["uses", (p) => page.count(p.uses), "right"],
      ["compile", (p) => [page.seconds(page.cost(p)),
        h("span", { class: "meter" },
          h("span", { "width%": (100 * page.cost(p)) / dearest }))], "right"],
      ["ops", (p) => page.count(p.instructions), "right"],
      ["peak memory", (p) => p.memory.peak_memory === undefined ? "–"
        : page.bytes(p.memory.peak_memory), "right"],
      ["because", (p) => h("span", { class: "because" }, page.shorten(p.why, 90))],
    ], programs, 500);
  }

  function programDetail(p) {
    return [
      h("h2", {}, `Program #${p.program}`),
      h("p", { class: "links" }, h("a", { href: `#graph/${p.program}` }, "its graph"),
        " · ", h("a", { href: `#replay/${p.program}` }, "replay its recording")),
      h("p", { class: "why" }, h("b", {}, "Compiled because "), page.prose(p.why), "."),
      p.differs_at && h("p", {}, "First difference at ", page.place(p.differs_at)),
      p.advice && h("p", { class: "advice" }, h("b", {}, "What to do: "), page.prose(p.advice), "."),
      page.facts(
        ["cut at", page.place(p.line)],
        ["uses", page.plural(p.uses, "cut")],
        ["cost", `${page.seconds(page.cost(p))}: ${page.seconds(p.trace_s)} tracing, ` +
          `${page.seconds(p.compile_s)} in XLA`],
        ["size", `${page.plural(p.instructions, "operation")}, ` +
          `${page.plural(p.inputs, "input")} (${page.count(p.donated)} donated), ` +
          `${page.plural(p.outputs, "output")}`],
        ["options", p.options]),
      memory(p.memory),
      keyDifference(p)];
  }

  function memory(found) {
    const rows = Object.entries(MEMORY).filter(([name]) => found[name] !== undefined);
    if (!rows.length) return page.note("XLA named no memory plan for it.");
    const most = d3.max(rows, ([name]) => found[name]) || 1;
    return page.table("Memory as XLA plans it", [
      ["", ([, label]) => label],
      ["", ([name]) => page.bytes(found[name]), "right"],
      ["", ([name]) => h("span", { class: "meter wide" },
        h("span", { "width%": (100 * found[name]) / most }))],
    ], rows);
  }

  function keyDifference(p) {
    const before = page.ledger.program.get(p.before);
    if (!before) {
      const parts = page.difference(p, p).map((part) => ({ ...part,
        rows: part.rows.map((r) => ({ ...r, sign: " " })) }));
      return [h("h3", {}, "Its key"),
        page.note("No program came before it that is like it", p.before >= 0
          ? ` (#${p.before} is no longer in the ledger)` : "", ": its key, part by part."),
        parts.map((part) => partView(part, false))];
    }
    return [
      h("h3", {}, "Its key against that of ",
        h("a", { href: `#programs/${before.program}` }, `program #${before.program}`)),
      page.note("Parts in the order in which a key is folded. Two keys are one program ",
        "only if all of it is equal. − stood there before, + stands there now, ~ is the ",
        "same operation on other values."),
      page.difference(before, p).map((part) => partView(part, true))];
  }

  function partView(part, compared) {
    const changed = part.rows.filter((r) => r.sign !== " ").length;
    const said = !compared ? page.plural(part.rows.length, "line")
      : changed ? page.plural(changed, "difference") : "equal";
    const body = h("div", { class: "diff" });
    const details = h("details", { class: changed ? "part changed" : "part",
      "data-part": part.name, "data-changed": changed,
      ontoggle: () => { if (details.open) page.fill(body, diffRows(part.rows, compared)); },
    }, h("summary", {}, part.name, h("span", { class: "dim" }, ` ${said}`)), body);
    if (changed) {
      page.fill(body, diffRows(part.rows, compared));
      details.open = true;
    }
    return details;
  }

  // Rows that differ with `AROUND` equal ones about them; all where nothing is compared.
  const AROUND = 2, MOST = 600;

  function diffRows(rows, compared) {
    const near = new Uint8Array(rows.length).fill(compared ? 0 : 1);
    const differs = rows.some((r) => r.sign !== " ");
    rows.forEach((r, i) => {
      if (!differs) near[i] = 1;
      if (r.sign !== " ") near.fill(1, Math.max(0, i - AROUND), i + AROUND + 1);
    });
    const found = [];
    for (let i = 0; i < rows.length && found.length < MOST; i += 1) {
      if (near[i]) {
        found.push(diffRow(rows[i]));
        continue;
      }
      let end = i;
      while (end < rows.length && !near[end]) end += 1;
      found.push(h("p", { class: "dim" }, `${page.plural(end - i, "equal line")}`));
      i = end - 1;
    }
    if (found.length === MOST) found.push(h("p", { class: "dim" }, "and more"));
    return found.length ? found : h("p", { class: "dim" }, "nothing");
  }

  const SIGNS = { "-": ["−", "gone"], "+": ["+", "came"], "~": ["~", "moved"],
    " ": [" ", ""] };

  function diffRow(r) {
    const [sign, kind] = SIGNS[r.sign];
    const text = r.new ?? r.old;
    return h("div", { class: `row ${kind}`, title: r.line || null },
      h("span", { class: "sign" }, sign),
      h("code", {}, text,
        r.sign === "~" && h("span", { class: "dim" }, `\n  before: ${r.old}`)),
      r.line && r.sign !== " " && h("span", { class: "where" }, page.file(r.line)));
  }
})();
