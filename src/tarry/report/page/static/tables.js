// Tables from columns: [title, cell of an item, "right" for numbers].
"use strict";

(() => {
  const { h } = page;

  page.table = (caption, columns, items, most = 200) => {
    const rows = items.slice(0, most).map((item) =>
      h("tr", {}, columns.map(([, cell, side]) =>
        h("td", { class: side }, cell(item)))));
    const more = items.length - rows.length;
    return h("div", { class: "scroll", tabindex: 0, role: "group", "aria-label": caption },
      h("table", {},
        h("caption", {}, caption),
        h("thead", {}, h("tr", {}, columns.map(([title, , side]) =>
          h("th", { class: side, scope: "col" }, title)))),
        h("tbody", {}, rows)),
      more > 0 && h("p", { class: "dim" }, `and ${page.count(more)} more`));
  };

  // A list of [term, description] that are there.
  page.facts = (...pairs) => h("dl", { class: "facts" }, pairs.map(([term, said]) =>
    said !== null && said !== undefined && said !== ""
      && h("div", {}, h("dt", {}, term), h("dd", {}, said))));

  page.swatch = (colour) => h("span", { class: "swatch", colour });

  page.swatched = (colour, text) =>
    h("span", { class: "swatched" }, page.swatch(colour), text);

  // A button of a toolbar, with the name that a screen reader says.
  page.button = (label, name, onclick, more = {}) =>
    h("button", { type: "button", "aria-label": name, title: name, onclick, ...more },
      label);

  page.note = (...text) => h("p", { class: "note" }, ...text);
})();
