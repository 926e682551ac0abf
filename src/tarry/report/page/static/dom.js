// Elements from data. Text enters as text nodes only, never as markup.
"use strict";

const page = { views: {} };

(() => {
  // h("a", { href: "#run", class: "x", onclick: f }, "text", child, [more])
  page.h = (tag, attributes, ...children) => {
    const element = document.createElement(tag);
    set(element, attributes);
    add(element, children);
    return element;
  };

  page.svg = (tag, attributes, ...children) => {
    const element = document.createElementNS("http://www.w3.org/2000/svg", tag);
    set(element, attributes);
    add(element, children);
    return element;
  };

  page.fill = (element, ...children) => {
    element.replaceChildren();
    add(element, children);
    return element;
  };

  page.add = (element, ...children) => add(element, children);

  function set(element, attributes) {
    for (const [name, value] of Object.entries(attributes || {})) {
      if (value === null || value === undefined || value === false) continue;
      if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
      else if (name === "colour") element.style.setProperty("--colour", value);
      else if (name === "width%") element.style.width = `${value}%`;
      else element.setAttribute(name, value === true ? "" : value);
    }
  }

  function add(element, children) {
    for (const child of children.flat(Infinity)) {
      if (child === null || child === undefined || child === false || child === "") {
        continue;
      }
      element.append(child instanceof Node ? child : String(child));
    }
  }

  // Words for numbers, as the reports in the terminal spell them.
  page.seconds = (s) => {
    if (s >= 9.95) return `${s.toFixed(1)} s`;
    if (s >= 0.1) return `${s.toFixed(2)} s`;
    return s >= 0.001 || s === 0
      ? `${(s * 1e3).toFixed(1)} ms` : `${(s * 1e6).toFixed(0)} µs`;
  };
  page.count = (n) => n.toLocaleString("en");
  page.plural = (n, noun) => `${page.count(n)} ${noun}${n === 1 ? "" : "s"}`;
  page.share = (part, whole) => {
    if (!whole) return "–";
    const percent = (100 * part) / whole;
    if (percent > 0 && percent < 1) return "< 1 %";
    return percent > 99 && percent < 100 ? "> 99 %" : `${percent.toFixed(0)} %`;
  };
  page.bytes = (n) => {
    const units = ["bytes", "KiB", "MiB", "GiB", "TiB"];
    let unit = 0;
    for (; n >= 1024 && unit < units.length - 1; unit += 1) n /= 1024;
    return `${unit && n < 100 ? n.toFixed(1) : page.count(Math.round(n))} ${units[unit]}`;
  };
  // A sentence with names in backticks.
  page.prose = (text) => text.split("`").map((piece, i) =>
    i % 2 ? page.h("code", {}, piece) : piece);
  page.shorten = (text, most) =>
    text.length > most ? `${text.slice(0, most - 1)}…` : text;
})();
