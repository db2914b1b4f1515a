// The broker's pages work without this; it keeps them up to date, draws charts and follows topics.
"use strict";

const SVG = "http://www.w3.org/2000/svg";
const POINTS = 90;
const INTERVAL_MS = 2000;

function element(name, attributes, parent) {
  const made = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  parent.append(made);
  return made;
}

function short(value) {
  for (const [size, unit] of [[1e9, "G"], [1e6, "M"], [1e3, "k"]]) {
    if (Math.abs(value) >= size) return (value / size).toFixed(1) + unit;
  }
  return value >= 10 || Number.isInteger(value) ? String(Math.round(value)) : value.toFixed(1);
}

class Chart {
  constructor(figure) {
    this.names = figure.dataset.series.split(" ");
    this.titles = figure.dataset.titles.split(",");
    this.values = this.names.map(() => []);
    this.svg = figure.querySelector("svg");
    this.legend = figure.querySelector("figcaption span");
  }
  add(sample) {
    this.names.forEach((name, index) => {
      this.values[index].push(sample[name] ?? 0);
      if (this.values[index].length > POINTS) this.values[index].shift();
    });
    this.draw();
  }
  draw() {
    this.svg.replaceChildren();
    this.legend.replaceChildren();
    const top = Math.max(1, ...this.values.flat()) * 1.1;
    for (const share of [0.25, 0.5, 0.75]) {
      element("line", { x1: 0, x2: POINTS - 1, y1: 100 * share, y2: 100 * share, class: "chart-grid" }, this.svg);
    }
    this.values.forEach((values, index) => {
      const offset = POINTS - values.length;
      const points = values.map((value, at) => `${offset + at},${100 - (value / top) * 100}`).join(" ");
      element("polyline", { points, class: `chart-line series-${index}` }, this.svg);
      const entry = document.createElement("span");
      entry.className = `series-${index}`;
      entry.textContent = ` ${this.titles[index]} ${short(values.at(-1))} `;
      this.legend.append(entry);
    });
  }
}

function watchOverview(figures) {
  const charts = [...figures].map((figure) => new Chart(figure));
  let last = null;
  async function look() {
    try {
      const answer = await fetch("/api/v1/overview");
      showAway(answer.status >= 500);
      if (!answer.ok) return;
      const overview = await answer.json();
      const at = performance.now() / 1000;
      const sample = { ...overview.totals, memory: overview.node.memory_bytes / 1048576 };
      if (last) {
        for (const name of ["published", "delivered", "settled"]) {
          sample[`${name}_rate`] = Math.max(0, (overview.totals[name] - last.totals[name]) / (at - last.at));
        }
        const spent = overview.node.cpu_seconds - last.cpu;
        sample.cpu = Math.max(0, (spent / (at - last.at)) * 100);
        charts.forEach((chart) => chart.add(sample));
      }
      last = { at, totals: overview.totals, cpu: overview.node.cpu_seconds };
      for (const place of document.querySelectorAll("[data-total]")) {
        place.textContent = short(overview.totals[place.dataset.total]);
      }
    } catch (error) {
      showAway(true);
      console.debug(error);
    }
  }
  look();
  setInterval(() => document.hidden || look(), INTERVAL_MS);
}

function showAway(isAway) {
  document.getElementById("away").hidden = !isAway;
}

// columns are sorted by a click on their title, again after each refresh: key is the table's place on the page
const sorting = new Map();

function textIn(row, column) {
  return row.cells[column]?.textContent.trim() ?? "";
}

function sortRows(table, column, isDown) {
  const number = (text) => Number.parseFloat(text.replace(/[\s\u202f]/g, ""));
  const isNumber = table.tHead.rows[0].cells[column].classList.contains("number");
  const rows = [...table.tBodies[0].rows].sort((a, b) => {
    const [left, right] = [textIn(a, column), textIn(b, column)];
    const order = isNumber ? (number(left) || 0) - (number(right) || 0) : left.localeCompare(right, "en", { numeric: true });
    return isDown ? -order : order;
  });
  table.tBodies[0].append(...rows);
  [...table.tHead.rows[0].cells].forEach((cell, index) => {
    if (index === column) cell.setAttribute("aria-sort", isDown ? "descending" : "ascending");
    else cell.removeAttribute("aria-sort");
  });
}

function makeSortable() {
  document.querySelectorAll("main table").forEach((table, place) => {
    if (!table.tHead || table.tBodies.length !== 1) return;
    [...table.tHead.rows[0].cells].forEach((cell, column) => {
      if (cell.querySelector("button") || !cell.textContent) return;
      const button = document.createElement("button");
      button.type = "button";
      button.textContent = cell.textContent;
      button.addEventListener("click", () => {
        const isDown = cell.getAttribute("aria-sort") === "ascending";
        sorting.set(place, [column, isDown]);
        sortRows(table, column, isDown);
      });
      cell.replaceChildren(button);
    });
    if (sorting.has(place)) sortRows(table, ...sorting.get(place));
  });
}

// an element with data-live is fetched again with its page, unless somebody is at work in it
function keepLive() {
  setInterval(async () => {
    const live = document.querySelectorAll("[data-live]");
    if (document.hidden || !live.length) return;
    try {
      const answer = await fetch(location.href);
      showAway(answer.status >= 500);
      if (!answer.ok) return;
      const fresh = new DOMParser().parseFromString(await answer.text(), "text/html");
      for (const place of live) {
        const found = fresh.getElementById(place.id);
        const title = place.contains(document.activeElement) ? document.activeElement.closest("th") : null;
        if (!found || (place.contains(document.activeElement) && !title)) continue;
        const table = title ? [...place.querySelectorAll("table")].indexOf(title.closest("table")) : -1;
        place.replaceChildren(...found.childNodes);
        makeSortable();
        if (title) place.querySelectorAll("table")[table]?.tHead.rows[0].cells[title.cellIndex].querySelector("button")?.focus();
      }
    } catch (error) {
      showAway(true);
      console.debug(error);
    }
  }, INTERVAL_MS);
}

function followTopics(form) {
  const output = document.getElementById("tail");
  const state = document.getElementById("tail-state");
  let socket = null;
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    if (socket) socket.close();
    output.textContent = "";
    const filter = new FormData(form).get("filter");
    const scheme = location.protocol === "https:" ? "wss" : "ws";
    socket = new WebSocket(`${scheme}://${location.host}/topics/tail?filter=${encodeURIComponent(filter)}`);
    socket.onopen = () => { state.textContent = `Following ${filter}`; };
    socket.onclose = (closed) => { state.textContent = closed.reason || "Not following."; };
    socket.onmessage = (event) => {
      const message = JSON.parse(event.data);
      output.append(`${message.topic}  ${message.body}\n`);
      while (output.childNodes.length > 500) output.firstChild.remove();
      output.scrollTop = output.scrollHeight;
    };
  });
}

for (const button of document.querySelectorAll("button[data-ask]")) {
  button.addEventListener("click", (event) => { if (!confirm(button.dataset.ask)) event.preventDefault(); });
}
const figures = document.querySelectorAll("figure[data-series]");
if (figures.length) watchOverview(figures);
makeSortable();
keepLive();
const tail = document.getElementById("tail-form");
if (tail) followTopics(tail);
