// The view Graph: one program's inputs, operations and outputs, closed groups first.
"use strict";

(() => {
  const { h, svg } = page;
  const MOST = 350;  // boxes that are laid out at once
  const CLOSEST = 1.25, READABLE = 0.6;

  page.views.graph = (root) => ({
    shown: (number) => {
      const program = page.chosen(number);
      if (!program) {
        page.fill(root, page.note("No program was compiled."));
        return undefined;
      }
      const graph = page.graph(program);
      const top = h("div", { class: "bar" }, page.menu(program.program, "graph"));
      if (!graph) {
        page.fill(root, top, page.note("The ledger holds no graph of this program: it ",
          "keeps a limited number of operations, of all programs together."));
      } else {
        show(root, top, graph);
      }
      return program.program;
    },
  });

  function show(root, top, graph) {
    const state = { graph, by: "line", open: new Set(), chosen: null, found: new Set() };
    const canvas = svg("svg", { class: "graph", role: "group",
      "aria-label": "graph of the program" });
    const layer = svg("g", {});
    canvas.append(layer);
    const zoom = d3.zoom().scaleExtent([0.05, 3])
      .filter((e) => !e.button && (e.type !== "wheel" || e.ctrlKey || e.shiftKey
        || canvas.contains(document.activeElement)))
      .on("zoom", (e) => layer.setAttribute("transform", e.transform));
    d3.select(canvas).call(zoom).on("dblclick.zoom", null);
    const detail = h("div", { class: "detail card", id: "thing", "aria-live": "polite" });
    const message = h("p", { class: "dim", "aria-live": "polite" });
    const results = h("ul", { class: "results" });
    const view = { state, canvas, layer, zoom, detail, message };
    page.fill(root,
      page.note("What a cut computes, from inputs down to outputs. Of inputs only shape ",
        "and dtype are part of the key. Operations are grouped by the line of your code that ",
        "recorded them, or by module; open a group with a click or Enter."),
      top,
      h("div", { class: "bar" }, grouping(view), searchBox(view, results),
        h("div", { class: "group", role: "group", "aria-label": "view" },
          page.button("−", "zoom out", () => d3.select(canvas).call(zoom.scaleBy, 0.7)),
          page.button("+", "zoom in", () => d3.select(canvas).call(zoom.scaleBy, 1.4)),
          page.button("fit", "show all of it", () => fit(view)),
          page.button("close all", "close all groups", () => {
            state.open.clear();
            redraw(view, true);
          }))),
      results, message, legend(),
      h("div", { class: "master graphs" }, h("div", { class: "card" }, canvas), detail));
    regroup(view);
    page.fill(detail, summary(graph));
  }

  function legend() {
    const kinds = { input: "input", number: "run-time number", seed: "random seed",
      line: "group of operations", op: "operation", output: "output" };
    return h("ul", { class: "legend" }, Object.entries(kinds).map(([kind, label]) =>
      h("li", {}, h("span", { class: `swatch is-${kind}` }), label)),
    h("li", {}, h("span", { class: "swatch donated" }),
      "donated: an output may take its buffer"));
  }

  function grouping(view) {
    return h("label", {}, "Group by ", h("select", {
      id: "grouping",
      onchange: (e) => { view.state.by = e.target.value; regroup(view); },
    }, h("option", { value: "line" }, "line"), h("option", { value: "module" }, "module")));
  }

  function regroup(view) {
    view.state.tree = page.groups(view.state.graph, view.state.by);
    view.state.open.clear();
    redraw(view, true);
  }

  function redraw(view, whole) {
    const { state, layer } = view;
    const shown = page.visible(state.graph, state.tree, state.open);
    const g = page.layout(shown);
    page.fill(layer, page.paint(shown, g, {
      act: (box) => choose(view, box),
      focus: (box) => { choose(view, box); follow(view, box); },
      toggle: (box) => toggle(view, box),
      chosen: state.chosen, found: state.found,
    }));
    view.size = g.graph();
    view.placed = g;
    page.fill(view.message, `${page.plural(shown.boxes.length, "box")} `
      .replace("boxs", "boxes"), "in sight, of ",
    page.plural(state.graph.nodes.length - state.graph.inputs.length, "operation"), ", ",
    page.plural(state.graph.inputs.length, "input"), " and ",
    page.plural(state.graph.outputs.length, "output"), ".");
    tall(view);
    if (whole) fit(view, READABLE);
  }

  // All of it, or, where that would be too small to read, its top.
  function fit(view, least = 0) {
    const { canvas, zoom, size } = view;
    const w = canvas.clientWidth;
    if (!w) return;
    const t = tall(view);
    const k = Math.max(least, Math.min(CLOSEST, w / size.width, t / size.height));
    d3.select(canvas).call(zoom.transform, d3.zoomIdentity
      .translate((w - k * size.width) / 2, Math.max(0, (t - k * size.height) / 2)).scale(k));
  }

  // As tall as the drawing needs at this width, within the window.
  function tall({ canvas, size }) {
    const most = Math.max(300, Math.min(0.74 * window.innerHeight, 780));
    const k = Math.min(CLOSEST, Math.max(canvas.clientWidth / size.width, 0.5));
    const t = Math.max(240, Math.min(most, k * size.height));
    canvas.style.height = `${t}px`;
    return t;
  }

  function toggle(view, box) {
    const { state } = view;
    const opens = !state.open.has(box.id);
    if (opens) state.open.add(box.id);
    else state.open.delete(box.id);
    const boxes = page.visible(state.graph, state.tree, state.open).boxes.length;
    if (opens && boxes > MOST) {
      state.open.delete(box.id);
      page.fill(view.message, `That would be ${boxes} boxes: close a group first.`);
    } else {
      redraw(view, false);
      centre(view, box.id, view.placed.node(box.id));
    }
    page.fill(view.detail, thingDetail(view, box));
    view.layer.querySelector(`[data-id="${box.id}"]`)?.focus({ preventScroll: true });
  }

  // Keep what was opened or found in sight.
  function centre(view, id, at) {
    if (!at) return;
    const k = Math.max(d3.zoomTransform(view.canvas).k, 0.5);
    const whole = view.size.width * k < view.canvas.clientWidth
      && view.size.height * k < view.canvas.clientHeight;
    tall(view);
    if (whole) fit(view);
    else d3.select(view.canvas).call(view.zoom.scaleTo, k)
      .call(view.zoom.translateTo, at.x, at.y);
  }

  // Keep what has the keyboard's focus in sight.
  function follow(view, box) {
    const at = view.placed.node(box.id), { canvas } = view;
    const [x, y] = d3.zoomTransform(canvas).apply([at.x, at.y]);
    if (x < 0 || y < 0 || x > canvas.clientWidth || y > canvas.clientHeight) {
      d3.select(canvas).call(view.zoom.translateTo, at.x, at.y);
    }
  }

  function choose(view, box) {
    view.state.chosen = box.id;
    for (const each of view.layer.querySelectorAll(".box")) {
      each.classList.toggle("chosen", each.dataset.id === box.id);
    }
    for (const each of view.layer.querySelectorAll(".edge")) {
      const { from, to } = each.dataset;
      each.classList.toggle("near", from === box.id || to === box.id);
    }
    page.fill(view.detail, thingDetail(view, box));
  }

  // Open what hides it, choose it, bring it to the middle.
  function reveal(view, box) {
    const { state } = view;
    for (let up = box.parent || box.home; up; up = up.parent) state.open.add(up.id);
    if (page.visible(state.graph, state.tree, state.open).boxes.length > MOST) {
      state.open.clear();
      for (let up = box.parent || box.home; up; up = up.parent) state.open.add(up.id);
    }
    state.chosen = box.id;
    redraw(view, false);
    centre(view, box.id, view.placed.node(box.id));
    choose(view, box);
  }

  function all(tree) {
    return tree.flatMap((group) => [group,
      ...(group.things || []).map((t) => Object.assign(t, { home: group })),
      ...all(group.children || [])]);
  }

  function searchBox(view, results) {
    const search = (e) => {
      const wanted = e.target.value.trim().toLowerCase();
      const text = (b) => `${page.boxText(b).join(" ")} ${b.node && !b.things
        ? `${page.spelled(b.node)} ${b.node.line} ${page.source(b.node.line)}` : ""}`;
      const hits = wanted ? all(view.state.tree).filter((b) => !b.children && !b.things
        && text(b).toLowerCase().includes(wanted)) : [];
      view.state.found = new Set(hits.map((b) => b.id));
      for (const each of view.layer.querySelectorAll(".box")) {
        each.classList.toggle("found", view.state.found.has(each.dataset.id));
      }
      page.fill(results, wanted && h("li", { class: "dim" }, `${hits.length} found`),
        hits.slice(0, 30).map((b) => h("li", {}, h("button", {
          type: "button", class: "link", onclick: () => reveal(view, b),
        }, page.boxText(b).join(" · ")))));
    };
    return h("label", {}, "Search ", h("input", { type: "search", id: "search",
      placeholder: "operation, name, line", oninput: search }));
  }

  function summary(graph) {
    const of = (kind) => graph.inputs.filter((i) => i.kind === kind).length;
    const numbers = graph.nodes.flatMap((n) => n.numbers);
    const seeds = numbers.filter(page.isSeed).length;
    return [h("h2", {}, "The program"), page.facts(
      ...Object.entries(page.inputKinds).map(([kind, label]) => [label, of(kind) || ""]),
      ["Scalars", numbers.length - seeds], ["Random seeds and draws", seeds || ""],
      ["Operations", graph.nodes.length - graph.inputs.length],
      ["Outputs", graph.outputs.length],
      ["Donated inputs", graph.inputs.filter((i) => i.donated).length])];
  }

  function thingDetail(view, box) {
    const { graph } = view.state;
    const op = (i) => h("li", {}, h("code", {}, page.spelled(graph.nodes[i])));
    if (box.things) {
      return [h("h2", {}, box.label), h("ul", { class: "plain" },
        box.things.slice(0, 200).map((t) => h("li", {}, h("b", {}, t.label), " ", t.sub,
          t.donated && " · donated")))];
    }
    if (box.children) {
      return [h("h2", {}, box.label), box.line && h("p", {}, page.place(box.line)),
        h("p", {}, page.plural(box.count, "operation"))];
    }
    const { node } = box;
    if (box.input) {
      return [h("h2", {}, box.label), page.facts(
        ["kind", page.inputKinds[box.input.kind]],
        ["shape", node.specs[0]],
        ["value made at", box.input.made && page.place(box.input.made)],
        ["first used at", page.place(node.line)],
        ["at its first run", { true: "uploaded from host memory",
          false: "already in a device buffer" }[box.input.host]],
        ["donated", box.input.donated ? "yes: its tensor takes a new value, so an " +
          "output may overwrite its buffer" : "no: its buffer is kept"]),
      h("h3", {}, "Read by"), h("ul", { class: "plain" }, node.users.slice(0, 50).map(op))];
    }
    return [
      h("h2", {}, box.output ? `Output: ${box.label}` : node.op),
      h("p", {}, h("code", {}, page.spelled(node))),
      h("p", {}, page.place(node.line)),
      box.number && page.facts(["number", `${box.label}: ${page.kind(box.number)}. Its ` +
        "value is an input of the program: another value is no compile"]),
      h("h3", {}, "Reads"), h("ul", { class: "plain" },
        [...new Set(node.reads)].map((v) => op(graph.maker[v]))),
      h("h3", {}, "Read by"), h("ul", { class: "plain" }, node.users.slice(0, 50).map(op))];
  }
})();
