// The tabs, and the address that says which view of which program is shown:
// #run, #programs/3, #graph/3, #replay/3.
"use strict";

(() => {
  const names = ["run", "programs", "graph", "replay"];
  const made = {};
  let program;  // the one that Programs, Graph and Replay last showed

  // What was asked for is shown when this returns; the browser's Back leads here too.
  page.go = (view, number) => {
    const address = number === undefined ? `#${view}` : `#${view}/${number}`;
    if (location.hash !== address) history.pushState(null, "", address);
    show();
  };

  const tab = (name) => document.getElementById(`tab-${name}`);
  const panel = (name) => document.getElementById(`view-${name}`);

  function show() {
    const [asked, number] = location.hash.slice(1).split("/");
    const name = names.includes(asked) ? asked : "run";
    if (/^\d+$/.test(number || "")) program = Number(number);
    made[page.shown]?.left?.();
    for (const each of names) {
      const chosen = each === name;
      tab(each).setAttribute("aria-selected", String(chosen));
      tab(each).tabIndex = chosen ? 0 : -1;
      panel(each).hidden = !chosen;
    }
    page.shown = name;
    try {
      if (!(name in made)) made[name] = page.views[name](panel(name)) || {};
      const kept = made[name].shown?.(program);
      if (kept !== undefined && name !== "run") program = kept;
    } catch (error) {
      delete made[name];
      page.fill(panel(name), page.note("This part of the ledger cannot be shown: ",
        `${error}`));
      console.error(error);
    }
  }

  function summary() {
    const { data } = page.ledger;
    const at = new Date(data.started * 1000);
    page.fill(document.getElementById("summary"),
      `${page.plural(data.steps, "step")}, ${page.plural(page.ledger.cutCount, "cut")}, ` +
      `${page.plural(data.programs.length, "program")}, started ` +
      `${at.toLocaleString("en-GB", { dateStyle: "medium", timeStyle: "short" })} · ` +
      `tarry ${data.tarry}`);
  }

  // Who has chosen a view goes on into it; arrow keys alone stay on the tabs.
  for (const name of names) {
    panel(name).tabIndex = -1;
    tab(name).addEventListener("click", () => {
      page.go(name, name === "run" ? undefined : program);
      panel(name).focus({ preventScroll: true });
    });
  }
  document.getElementById("tabs").addEventListener("keydown", (event) => {
    const at = names.indexOf(page.shown);
    const to = { ArrowRight: at + 1, ArrowLeft: at - 1, Home: 0, End: -1 }[event.key];
    if (to === undefined) return;
    event.preventDefault();
    const name = names.at(to % names.length);
    page.go(name, name === "run" ? undefined : program);
    tab(name).focus();
  });
  document.addEventListener("click", (event) => {
    const link = event.target.closest?.("a[href^='#']");
    if (!link || event.ctrlKey || event.metaKey || event.shiftKey) return;
    event.preventDefault();
    page.go(...link.getAttribute("href").slice(1).split("/"));
  });
  window.addEventListener("hashchange", show);
  summary();
  show();
})();
