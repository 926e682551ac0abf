// The part of a tree of groups that is open, laid out by dagre and drawn as SVG.
"use strict";

(() => {
  const { svg } = page;
  const TALL = 40, WIDEST = 34;

  // What is in sight: { boxes, clusters, edges }; an edge leads from what makes a value
  // to what reads it, as far as each can be seen.
  page.visible = (graph, tree, open) => {
    const boxes = [], clusters = [], stands = new Map();
    const hide = (group, box) => {
      if (group.node && !group.things) stands.set(group.node.index, box);
      for (const child of group.children || []) hide(child, box);
    };
    const walk = (group, parent) => {
      group.within = parent;
      const inside = group.children || group.things;
      if (inside && open.has(group.id)) {
        clusters.push(group);
        inside.forEach((child) => walk(child, group));
        return;
      }
      boxes.push(group);
      if (!group.things && !isThing(group)) hide(group, group);
    };
    tree.forEach((group) => walk(group, null));
    return { boxes, clusters, edges: edges(graph, boxes, stands) };
  };

  const isThing = (box) => Boolean(box.to) || box.from !== undefined;

  function edges(graph, boxes, stands) {
    const found = new Map();
    const add = (from, to) => {
      if (!from || !to || from === to) return;
      const key = `${from.id} ${to.id}`;
      const edge = found.get(key);
      if (edge) edge.n += 1;
      else found.set(key, { from, to, n: 1 });
    };
    for (const node of graph.nodes) {
      if (page.isInput(node)) continue;
      for (const user of node.users) add(stands.get(node.index), stands.get(user));
    }
    for (const box of boxes) {
      for (const thing of box.things || [box]) {
        for (const user of thing.to || []) add(box, stands.get(user));
        if (thing.from === undefined) continue;
        if (thing.node.input) continue;
        add(stands.get(thing.from), box);
      }
    }
    return [...found.values()];
  }

  page.layout = ({ boxes, clusters, edges }) => {
    const g = new dagre.graphlib.Graph({ compound: clusters.length > 0 });
    g.setGraph({ nodesep: 18, ranksep: 34, marginx: 12, marginy: 12,
      ranker: boxes.length > 200 ? "longest-path" : "network-simplex" });
    g.setDefaultEdgeLabel(() => ({}));
    for (const box of boxes) g.setNode(box.id, { width: wide(box), height: TALL });
    for (const cluster of clusters) g.setNode(cluster.id, {});
    for (const each of [...boxes, ...clusters]) {
      if (each.within) g.setParent(each.id, each.within.id);
    }
    // Boxes that follow each other stand below each other; what comes in from the side
    // does not pull at them.
    const order = new Map(boxes.map((box, i) => [box, i]));
    for (const { from, to } of edges) {
      const aside = from.things || isThing(from) || to.things || isThing(to);
      const next = order.get(to) - order.get(from) === 1;
      g.setEdge(from.id, to.id, { weight: aside ? 0 : next ? 20 : 1 });
    }
    dagre.layout(g);
    return g;
  };

  page.boxText = (box) => {
    if (box.node && !isThing(box)) {
      return [box.node.op, `${page.results(box.node)} ${box.node.specs[0] ?? ""}`];
    }
    if (box.things) {
      const gone = box.things.filter((t) => t.donated).length;
      return [box.label, page.count(box.things.length) + (gone ? `, ${gone} donated` : "")];
    }
    if (isThing(box)) return [box.label, box.sub + (box.donated ? ", donated" : "")];
    return [box.label, `${page.plural(box.count, "op")}${box.sub ? ` · ${box.sub}` : ""}`];
  };

  function wide(box) {
    const [title, sub] = page.boxText(box).map((t) => Math.min(t.length, WIDEST));
    return Math.max(90, 7.6 * (title + 2) + 20, 6.4 * sub + 20);
  }

  // `act(box)` where a box is chosen, `focus(box)` where the keyboard comes to it,
  // `toggle(box)` where it is opened or closed.
  page.paint = (shown, g, { act, focus, toggle, chosen, found }) => {
    const parts = [svg("defs", {}, svg("marker", { id: "tip", viewBox: "0 0 8 8", refX: 7,
      refY: 4, markerWidth: 7, markerHeight: 7, orient: "auto" },
    svg("path", { d: "M0 0 L8 4 L0 8 z", class: "tip" })))];
    for (const cluster of d3.sort(shown.clusters, depth)) {
      parts.push(clusterView(cluster, g.node(cluster.id), toggle));
    }
    const path = d3.line((p) => p.x, (p) => p.y).curve(d3.curveBasis);
    for (const { from, to, n } of shown.edges) {
      const near = (chosen === from.id || chosen === to.id) && "near";
      const names = ["edge", from.things && "many", near].filter(Boolean);
      parts.push(svg("path", { class: names.join(" "),
        "data-from": from.id, "data-to": to.id, d: path(g.edge(from.id, to.id).points), "marker-end": "url(#tip)" },
      svg("title", {}, `${from.label || from.node.op} → ${to.label || to.node.op}: ` +
        page.plural(n, "value"))));
    }
    for (const box of shown.boxes) {
      parts.push(boxView(box, g.node(box.id), { act, focus, toggle, chosen, found }));
    }
    return parts;
  };

  const depth = (group) => group.within ? 1 + depth(group.within) : 0;

  function clusterView(group, at, toggle) {
    const [x, y] = [at.x - at.width / 2, at.y - at.height / 2];
    return svg("g", { class: "cluster", transform: `translate(${x},${y})` },
      svg("rect", { width: at.width, height: at.height, rx: 8 }),
      key(svg("g", { class: "toggle", tabindex: 0, role: "button", "data-id": group.id,
        "aria-expanded": "true", "aria-label": `close ${group.label}` },
      svg("rect", { width: at.width, height: 18, rx: 8 }),
      svg("text", { x: 8, y: 13 }, "▾ " + page.shorten(group.label,
        Math.max(4, Math.floor(at.width / 7) - 3)))), () => toggle(group)));
  }

  function boxView(box, at, { act, focus, toggle, chosen, found }) {
    const [title, sub] = page.boxText(box);
    const opens = Boolean(box.children || box.things);
    const kind = box.node && !isThing(box) ? "op" : box.kind;
    const names = ["box", `is-${kind}`, box.donated && "donated",
      chosen === box.id && "chosen", found.has(box.id) && "found"];
    return key(svg("g", {
      class: names.filter(Boolean).join(" "), tabindex: 0, role: "button",
      "data-id": box.id, "aria-expanded": opens ? "false" : null,
      "aria-label": `${title}, ${sub}${opens ? ", open" : ""}`,
      transform: `translate(${at.x - at.width / 2},${at.y - at.height / 2})`,
    }, svg("title", {}, `${title}\n${sub}`),
    svg("rect", { width: at.width, height: at.height, rx: opens ? 8 : 4 }),
    svg("text", { x: 10, y: 16, class: "title" },
      (opens ? "▸ " : "") + page.shorten(title, opens ? WIDEST - 2 : WIDEST)),
    svg("text", { x: 10, y: 32, class: "sub" }, page.shorten(sub, WIDEST))),
    () => (opens ? toggle(box) : act(box)), () => focus(box));
  }

  // A click or Enter does `first`; the focus shows what it is on.
  function key(element, first, focused) {
    element.addEventListener("click", first);
    element.addEventListener("keydown", (event) => {
      if (event.key !== "Enter" && event.key !== " ") return;
      event.preventDefault();
      first();
    });
    if (focused) {
      element.addEventListener("focus", () => {
        if (element.matches(":focus-visible")) focused();
      });
    }
    return element;
  }
})();
