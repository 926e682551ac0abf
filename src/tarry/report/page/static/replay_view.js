// The view Replay: stepping through a recording, with the code, the recording, the
// values and the key beside each other.
"use strict";

(() => {
  const { h } = page;
  const WORDS = [
    ["IR", "pending: an instruction of this recording, no value yet"],
    ["view", "pending too: other elements or another shape of a value"],
    ["HOST", "a copy in host memory; the next program that reads it uploads it"],
    ["DEVICE", "a buffer on the device: computed, or uploaded before"],
    ["output", "after the cut: a tensor holds it, so it is computed and kept"],
    ["between", "after the cut: needed on the way at most, no tensor holds it"],
    ["dead", "no output needs it: it is not computed"],
    ["donated", "its buffer was handed on to an output"],
  ];
  const NEAR = 14, VALUES = 80, KEY_LINES = 60, PACE = 700;

  const view = { timer: null };
  document.addEventListener("keydown", (event) => pressed(view, event));

  page.views.replay = (root) => {
    Object.assign(view, { root, replay: null });
    return {
      shown: (number) => {
        const program = page.chosen(number);
        if (!program) {
          page.fill(root, page.note("No program was compiled."));
          return undefined;
        }
        if (view.replay?.program !== program) build(view, program);
        return program.program;
      },
      left: () => stop(view),
    };
  };

  function build(view, program) {
    stop(view);
    view.replay = page.replayOf(program);
    const menu = page.menu(program.program, "replay");
    if (!view.replay) {
      page.fill(view.root, h("div", { class: "bar" }, menu), page.note("The ledger holds ",
        "no recording of this program: it keeps a limited number of operations, of all ",
        "programs together."));
      return;
    }
    const part = (id, title, cls = "") => {
      const body = h("div", { class: "body", id: `replay-${id}` });
      view[id] = body;
      return h("section", { class: `card panel ${cls}`, "aria-label": title },
        h("h3", {}, title), body);
    };
    view.slider = h("input", { type: "range", min: 0, max: view.replay.stages.length - 1,
      value: 0, id: "stage", "aria-label": "stage of the replay",
      oninput: () => go(view, Number(view.slider.value)) });
    view.play = page.button("play", "play or pause (space)", () => play(view),
      { id: "play" });
    view.said = h("div", { class: "said card", id: "said", "aria-live": "polite" });
    page.fill(view.root,
      h("div", { class: "bar" }, menu,
        h("div", { class: "group", role: "group", "aria-label": "step" },
          page.button("|◀", "to the start (Home)", () => go(view, 0)),
          page.button("◀", "one back (←)", () => go(view, view.index - 1)),
          view.play,
          page.button("▶", "one on (→)", () => go(view, view.index + 1)),
          page.button("line ▶", "on to the next line (n)", () => line(view, 1)),
          page.button("cut ▶", "to the cut (c)", () => go(view, cutIndex(view))),
          page.button("▶|", "to the end (End)", () => go(view, Infinity)))),
      view.slider, view.said,
      h("div", { class: "panels" },
        part("code", "Your code"), part("rows", "The recording"),
        part("values", "Values"), part("key", "The key")),
      h("p", { class: "dim" }, "Keys: ← → step, n and p to the next and previous line, ",
        "c to the cut, Home, End, space to play."));
    go(view, 0);
  }

  const cutIndex = (view) => view.replay.nodes.length + 1;

  function go(view, to) {
    const last = view.replay.stages.length - 1;
    view.index = Math.max(0, Math.min(to, last));
    view.slider.value = view.index;
    const place = view.replay.at(view.index);
    const { title, sentences } = page.says(view.replay, place);
    view.slider.setAttribute("aria-valuetext", title);
    page.fill(view.said, h("p", { class: "dim" },
      `${page.count(view.index)} of ${page.count(last)}`),
    h("h2", {}, title), sentences.map((s) => h("p", {}, page.prose(s))));
    showCode(view, place);
    showRows(view, place);
    showValues(view, place);
    showKey(view, place);
    for (const body of [view.code, view.rows, view.key]) showNow(body);
    if (view.index === last) stop(view);
  }

  function showNow(body) {
    const now = body.querySelector(".now");
    if (!now) return;
    const [high, low] = [now.offsetTop - body.offsetTop,
      now.offsetTop - body.offsetTop + now.offsetHeight];
    if (low > body.scrollTop + body.clientHeight) {
      body.scrollTop = Math.min(high, low - body.clientHeight);
    } else if (high < body.scrollTop) {
      body.scrollTop = high;
    }
  }

  // On to the next stage of another line, or back to the first of one.
  function line(view, by) {
    const { stages } = view.replay;
    const key = (i) => stages[i]?.node?.line ?? stages[i]?.name;
    let i = view.index;
    const now = key(i);
    while (i + by >= 0 && i + by < stages.length && key(i) === now) i += by;
    if (by < 0) while (i > 0 && stages[i].node && key(i - 1) === key(i)) i -= 1;
    go(view, i);
  }

  function play(view) {
    if (view.timer) {
      stop(view);
      return;
    }
    if (view.index === view.replay.stages.length - 1) go(view, 0);
    view.play.replaceChildren("pause");
    view.timer = setInterval(() => go(view, view.index + 1), PACE);
  }

  function stop(view) {
    if (!view.timer) return;
    clearInterval(view.timer);
    view.timer = null;
    view.play.replaceChildren("play");
  }

  function pressed(view, event) {
    if (page.shown !== "replay" || !view.replay) return;
    if (event.ctrlKey || event.metaKey || event.altKey || event.defaultPrevented) return;
    const { target } = event;
    if (target.closest("[role=tablist], select, textarea, input:not([type=range])")) return;
    if (event.key === " " && target.closest("button, a, summary")) return;
    const does = {
      ArrowRight: () => go(view, view.index + 1),
      ArrowLeft: () => go(view, view.index - 1),
      Home: () => go(view, 0),
      End: () => go(view, Infinity),
      n: () => line(view, 1),
      p: () => line(view, -1),
      c: () => go(view, cutIndex(view)),
      " ": () => play(view),
    }[event.key];
    if (!does) return;
    event.preventDefault();
    does();
  }

  function around(list, middle, most) {
    const from = Math.max(0, Math.min(middle - most / 2, list.length - most));
    return [from, Math.min(list.length, from + most)].map(Math.floor);
  }

  const dots = (n, what) => n > 0 && h("li", { class: "dim" }, `… ${page.count(n)} ${what}`);

  function showCode(view, place) {
    const { lines } = view.replay;
    const now = lines.findIndex((l) => l.line === place.current?.line);
    const begun = lines.filter((l) => l.rows[0] < place.recorded).length;
    const [from, to] = around(lines, now < 0 ? begun : now, 2 * NEAR);
    const items = lines.slice(from, to).map((l, i) => {
      const done = d3.bisectLeft(l.rows, place.recorded);
      const cls = from + i === now ? "now" : done ? "" : "ahead";
      return h("li", { class: cls }, page.place(l.line), h("span", { class: "dim count" },
        done < l.rows.length ? `${done} of ${l.rows.length}` : `${l.rows.length} recorded`));
    });
    const { cut } = view.replay;
    page.fill(view.code, h("ol", { class: "plain" }, dots(from, "lines before"), items,
      dots(lines.length - to, "lines after"),
      cut && h("li", { class: place.cut ? "now cutline" : "ahead cutline" },
        page.place(cut.line), h("span", { class: "dim count" },
          `cut: ${page.causeText(cut)}`))));
  }

  function showRows(view, place) {
    const { nodes, recording } = view.replay;
    const seen = nodes.slice(0, place.recorded);
    const [from, to] = place.cut ? around(seen, 0, 200) : around(seen, seen.length, 24);
    page.fill(view.rows, seen.length === 0 && h("p", { class: "dim" }, "empty"),
      h("ol", { class: "plain rows" }, dots(from, "before"),
        seen.slice(from, to).map((node) => {
          const alive = place.cut && node.values.some((v) => recording.alive.has(v));
          const cls = [node === place.current && "now", place.settled && !node.kept
            && "dead", alive && "alive"];
          return h("li", { class: cls.filter(Boolean).join(" "), title: node.line },
            h("code", {}, page.shorten(page.spelled(node), 160)),
            alive && h("span", { class: "badge output" }, "output"),
            place.settled && !node.kept && h("span", { class: "badge dead" }, "dead"));
        }), dots(seen.length - to, "more")));
  }

  function showValues(view, place) {
    const { recording, nodes } = view.replay;
    const live = page.liveAt(view.replay, place);
    const counts = d3.rollup(live, (vs) => vs.length, (v) =>
      page.stateOf(view.replay, place, v)[0]);
    page.fill(view.values,
      h("p", { class: "badges" }, [...counts].map(([word, n]) => h("span",
        { class: `badge ${word}` }, `${word} ${page.count(n)}`))),
      h("details", {
        open: view.wordsOpen, ontoggle: (e) => { view.wordsOpen = e.target.open; },
      }, h("summary", {}, "what the words mean"), page.facts(...WORDS)),
      !live.length && h("p", { class: "dim" }, "none yet"),
      h("ul", { class: "plain rows" }, live.slice(0, VALUES).map((v) => {
        const node = nodes[recording.maker[v]];
        const [word, cls, said] = page.stateOf(view.replay, place, v);
        const fresh = place.current === node;
        return h("li", { class: [fresh && "now", cls === "dead" && "dead"]
          .filter(Boolean).join(" "), title: said },
        h("code", {}, `%${v}`), " ", h("span", { class: `badge ${cls}` }, word), " ",
        h("span", {}, node.specs[v - node.base]), " ",
        h("span", { class: "dim" }, valueName(view.replay, place, v)));
      }), dots(live.length - VALUES, "more values")));
  }

  function valueName({ recording, nodes }, place, v) {
    const name = recording.names.get(v);
    const known = page.isInput(nodes[recording.maker[v]]) || place.cut;
    if (name && known) return name;
    const node = nodes[recording.maker[v]];
    return page.isInput(node) ? "data" : node.op;
  }

  function showKey(view, place) {
    const { parts, graph } = view.replay;
    const folded = parts.slice(0, place.folded);
    if (!place.cut) {
      const twin = place.current?.twin;
      page.fill(view.key, h("p", {}, "The key is folded at the cut. ",
        twin ? "This instruction's line in it, values numbered anew, will be:"
          : place.current ? "This instruction will not be in it." : ""),
      twin && h("p", {}, h("code", {}, page.isInput(twin)
        ? `%${twin.base} = input ${twin.input.place}: ${twin.specs[0]}`
        : page.spelled(twin))));
      return;
    }
    page.fill(view.key, !folded.length && h("p", { class: "dim" }, "nothing folded yet"),
      folded.map((part, i) => {
        const now = i === folded.length - 1 && place.stage.name === "key";
        const most = now ? KEY_LINES : 6;
        return h("div", { class: now ? "keypart now" : "keypart", "data-part": part.name },
          h("b", {}, `${i + 1}. ${part.name}`),
          h("span", { class: "dim" }, ` ${page.plural(part.lines.length, "line")}`),
          h("ol", { class: "plain rows" },
            part.lines.slice(0, most).map((l) => h("li", {}, h("code", {}, l))),
            dots(part.lines.length - most, "more")));
      }),
      place.folded === parts.length && h("p", {}, "The key is complete",
        graph ? ": compared by structure, not only by a hash." : "."));
  }
})();
