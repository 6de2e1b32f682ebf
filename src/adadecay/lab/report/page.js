// The page's own behaviour: charts, legends, sorting, filtering, theme. No network.
(() => {
  "use strict";
  const charts = JSON.parse(document.getElementById("charts").textContent);
  const views = new Map();
  const all = (selector, root = document) => [...root.querySelectorAll(selector)];

  // Colours of text and grid come from the style sheet, so that a change of theme, or
  // printing, needs no new drawing.
  const config = {
    background: "transparent",
    font: "system-ui, sans-serif",
    view: { stroke: "transparent" },
    axis: { labelFontSize: 11, titleFontSize: 11, titleFontWeight: 500, gridOpacity: 0.8, tickCount: 6 },
    legend: { labelFontSize: 11, symbolStrokeWidth: 2 },
  };
  const options = {
    renderer: "svg",
    config,
    actions: { export: { svg: true, png: true }, source: false, compiled: false, editor: false },
    downloadFileName: "adadecay",
  };

  async function draw(figure) {
    const name = figure.dataset.chart;
    if (figure.dataset.drawn) return;
    figure.dataset.drawn = "busy";
    const target = figure.querySelector(".canvas");
    const result = await window.vegaEmbed(target, charts[name], { ...options, downloadFileName: name });
    views.set(name, result.view);
    const menu = target.querySelector("summary");
    if (menu) menu.setAttribute("aria-label", "Save this chart");
    figure.dataset.drawn = "yes";
  }

  // What is in sight first; the rest when the browser has time, so that printing and
  // searching find everything.
  async function drawAll() {
    const figures = all("figure[data-chart]");
    const seen = figures.filter((figure) => figure.getBoundingClientRect().top < innerHeight * 1.5);
    for (const figure of new Set([...seen, ...figures])) {
      await draw(figure);
      await new Promise((resolve) => setTimeout(resolve));
    }
    document.documentElement.dataset.ready = "yes";
  }

  function viewsOf(section) {
    return all("figure[data-chart]", section).map((figure) => views.get(figure.dataset.chart)).filter(Boolean);
  }

  function signal(view, name, value) {
    try { view.signal(name, value).runAsync(); } catch { /* this chart has no such parameter */ }
  }

  all(".legend").forEach((legend) => {
    const section = legend.closest("section");
    legend.addEventListener("click", (event) => {
      const button = event.target.closest("button");
      if (!button) return;
      button.setAttribute("aria-pressed", button.getAttribute("aria-pressed") !== "true");
      const hidden = all("button[aria-pressed=false]", legend).map((each) => each.dataset.series);
      viewsOf(section).forEach((view) => signal(view, "hidden", hidden));
    });
  });

  all(".range").forEach((range) => {
    const section = range.closest("section");
    range.addEventListener("click", (event) => {
      const button = event.target.closest("button");
      if (!button) return;
      all("button", range).forEach((each) => each.setAttribute("aria-pressed", each === button));
      all("figure[data-chart]", section).forEach((figure) => {
        const view = views.get(figure.dataset.chart);
        if (!view) return;
        const last = Math.max(...rowsOf(figure.dataset.chart).map((row) => row.epoch));
        signal(view, "first", Math.max(1, Math.floor(last * Number(button.dataset.share)) + 1));
      });
    });
  });

  // The longest table of a chart is what it draws; the others hold reference lines.
  function rowsOf(name) {
    const tables = Object.values(charts[name].datasets || {});
    return tables.sort((a, b) => b.length - a.length)[0] || [];
  }

  function element(tag, text, attributes = {}) {
    const made = document.createElement(tag);
    if (text !== undefined) made.textContent = text === null ? "–" : text;
    Object.entries(attributes).forEach(([key, value]) => made.setAttribute(key, value));
    return made;
  }

  all("details.numbers").forEach((details) => {
    details.addEventListener("toggle", () => {
      const holder = details.querySelector(".scroll");
      if (!details.open || holder.firstChild) return;
      const rows = rowsOf(details.closest("figure").dataset.chart);
      const names = Object.keys(rows[0] || {}).filter((name) => name !== "place");
      const table = element("table");
      const head = table.createTHead().insertRow();
      names.forEach((name) => head.append(element("th", name, { scope: "col" })));
      const body = table.createTBody();
      rows.forEach((row) => {
        const line = body.insertRow();
        names.forEach((name) => line.append(element("td", row[name] ?? null)));
      });
      holder.append(table);
    });
  });

  function sort(header) {
    const table = header.closest("table");
    const place = [...header.parentNode.children].indexOf(header);
    const up = header.getAttribute("aria-sort") !== "ascending";
    all("thead th", table).forEach((each) => each.setAttribute("aria-sort", "none"));
    header.setAttribute("aria-sort", up ? "ascending" : "descending");
    const numeric = header.classList.contains("number");
    const key = (row) => row.cells[place].dataset.value;
    const body = table.tBodies[0];
    const rows = [...body.rows].sort((a, b) => {
      const [x, y] = [key(a), key(b)];
      if (x === "" || y === "") return (x === "") - (y === "");  // what is missing comes last
      const order = numeric ? Number(x) - Number(y) : x.localeCompare(y);
      return up ? order : -order;
    });
    body.append(...rows);
  }
  all("table.sortable thead button").forEach((button) => {
    button.addEventListener("click", () => sort(button.closest("th")));
  });

  all("input[data-filter]").forEach((input) => {
    const table = document.getElementById(input.dataset.filter);
    const count = document.getElementById(`${input.dataset.filter}-count`);
    const show = () => {
      const words = input.value.toLowerCase().split(/\s+/).filter(Boolean);
      let shown = 0;
      for (const row of table.tBodies[0].rows) {
        const text = row.textContent.toLowerCase();
        row.hidden = !words.every((word) => text.includes(word));
        shown += row.hidden ? 0 : 1;
      }
      count.textContent = `${shown} of ${table.tBodies[0].rows.length} rows`;
    };
    input.addEventListener("input", show);
    show();
  });

  const themes = ["auto", "light", "dark"];
  const button = document.getElementById("theme");
  function setTheme(theme) {
    if (theme === "auto") delete document.documentElement.dataset.theme;
    else document.documentElement.dataset.theme = theme;
    button.textContent = `Theme: ${theme}`;
    button.dataset.theme = theme;
    try { localStorage.setItem("adadecay-theme", theme); } catch { /* a file may keep nothing */ }
  }
  let kept = "auto";
  try { kept = localStorage.getItem("adadecay-theme") || "auto"; } catch { /* the same */ }
  setTheme(themes.includes(kept) ? kept : "auto");
  button.addEventListener("click", () => setTheme(themes[(themes.indexOf(button.dataset.theme) + 1) % 3]));

  document.getElementById("print").addEventListener("click", () => print());
  let closed = [];
  addEventListener("beforeprint", () => {
    closed = all("details.rules:not([open]), details.untested:not([open]), .card details:not([open])");
    closed.forEach((details) => { details.open = true; });
  });
  addEventListener("afterprint", () => closed.forEach((details) => { details.open = false; }));

  drawAll();
})();
