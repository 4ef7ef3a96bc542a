"use strict";
const SVG = "http://www.w3.org/2000/svg";
const W = 960, H = 170, LEFT = 64, RIGHT = 8, TOP = 8, BOTTOM = 22;

function node(name, attributes, parent, text) {
  const made = document.createElementNS(SVG, name);
  for (const key in attributes) made.setAttribute(key, attributes[key]);
  if (text !== undefined) made.textContent = text;
  if (parent) parent.appendChild(made);
  return made;
}

function clock(origin, second) {
  if (!origin) return second.toFixed(0) + " s";
  const at = new Date(Date.parse(origin + "Z") + second * 1000);
  return at.toISOString().slice(5, 19).replace("T", " ");
}

function figure(value) {
  if (value === null || value === undefined) return "-";
  return Math.abs(value) >= 100 ? Math.round(value).toLocaleString("en") : String(Math.round(value * 1000) / 1000);
}

class Board {
  constructor(holder) {
    this.data = JSON.parse(holder.querySelector("script[type='application/json']").textContent);
    this.seconds = this.data.second;
    this.full = [this.seconds[0], Math.max(this.seconds[this.seconds.length - 1], this.seconds[0] + 1)];
    this.range = this.full.slice();
    this.charts = [...holder.querySelectorAll("svg[data-series]")].map((svg) => ({ svg, names: svg.dataset.series.split(",") }));
    this.reading = holder.querySelector(".reading");
    for (const chart of this.charts) this.listen(chart.svg);
    holder.querySelector(".reset").addEventListener("click", () => { this.range = this.full.slice(); this.draw(); });
    this.draw();
    holder.dataset.drawn = "yes";
  }

  x(second) { return LEFT + (second - this.range[0]) / (this.range[1] - this.range[0]) * (W - LEFT - RIGHT); }

  second(event, svg) {
    const box = svg.getBoundingClientRect();
    const part = ((event.clientX - box.left) / box.width * W - LEFT) / (W - LEFT - RIGHT);
    return this.range[0] + Math.min(1, Math.max(0, part)) * (this.range[1] - this.range[0]);
  }

  listen(svg) {
    let from = null;
    svg.addEventListener("pointerdown", (event) => { from = this.second(event, svg); });
    svg.addEventListener("pointermove", (event) => this.point(this.second(event, svg)));
    svg.addEventListener("pointerup", (event) => {
      const to = this.second(event, svg);
      if (from !== null && Math.abs(to - from) > (this.range[1] - this.range[0]) / 50) this.zoom(Math.min(from, to), Math.max(from, to));
      from = null;
    });
    svg.addEventListener("keydown", (event) => this.key(event));
  }

  key(event) {
    const width = this.range[1] - this.range[0], at = this.cursor === undefined ? this.range[0] : this.cursor;
    if (event.key === "ArrowRight") this.point(Math.min(this.range[1], at + width / 100));
    else if (event.key === "ArrowLeft") this.point(Math.max(this.range[0], at - width / 100));
    else if (event.key === "+") this.zoom(at - width / 4, at + width / 4);
    else if (event.key === "-") this.zoom(at - width, at + width);
    else return;
    event.preventDefault();
  }

  zoom(from, to) {
    this.range = [Math.max(this.full[0], from), Math.min(this.full[1], to)];
    if (this.range[1] - this.range[0] < 1) this.range[1] = this.range[0] + 1;
    this.draw();
  }

  nearest(second) {
    let low = 0, high = this.seconds.length - 1;
    while (low < high) { const mid = (low + high) >> 1; if (this.seconds[mid] < second) low = mid + 1; else high = mid; }
    return low;
  }

  point(second) {
    this.cursor = second;
    const index = this.nearest(second), parts = [clock(this.data.origin[0], this.seconds[index])];
    for (const chart of this.charts) {
      chart.line.setAttribute("x1", this.x(second));
      chart.line.setAttribute("x2", this.x(second));
      for (const name of chart.names) if (this.data[name]) parts.push(name + " " + figure(this.data[name][index]));
    }
    this.reading.textContent = parts.join("   ");
  }

  draw() {
    for (const chart of this.charts) {
      const svg = chart.svg, names = chart.names.filter((name) => this.data[name]);
      svg.replaceChildren();
      let top = 0;
      names.forEach((name) => this.data[name].forEach((value, i) => {
        if (value > top && this.seconds[i] >= this.range[0] && this.seconds[i] <= this.range[1]) top = value;
      }));
      top = top || 1;
      const y = (value) => TOP + (1 - value / top) * (H - TOP - BOTTOM);
      for (const phase of this.data.phases || []) if (phase.kind !== "steady") {
        const from = Math.max(this.x(phase.from), LEFT), to = Math.min(this.x(phase.to), W - RIGHT);
        const fill = { saturated: "var(--c1)", storm: "var(--disagree)", idle: "var(--c5)" }[phase.kind] || "var(--c0)";
        if (to > from) node("rect", { x: from, y: TOP, width: to - from, height: H - TOP - BOTTOM, fill, class: "band" }, svg);
      }
      for (const share of [0, 0.5, 1]) {
        node("line", { x1: LEFT, x2: W - RIGHT, y1: y(top * share), y2: y(top * share), class: "axis" }, svg);
        node("text", { x: LEFT - 6, y: y(top * share) + 4, "text-anchor": "end" }, svg, figure(top * share));
      }
      for (let tick = 0; tick <= 4; tick++) {
        const second = this.range[0] + (this.range[1] - this.range[0]) * tick / 4;
        const anchor = tick === 0 ? "start" : tick === 4 ? "end" : "middle";
        node("text", { x: this.x(second), y: H - 6, "text-anchor": anchor }, svg, clock(this.data.origin[0], second));
      }
      names.forEach((name, order) => node("path", { d: this.path(name, y), fill: "none", stroke: `var(--c${order})`, "stroke-width": 1.5 }, svg));
      chart.line = node("line", { x1: -9, x2: -9, y1: TOP, y2: H - BOTTOM, class: "cursor" }, svg);
    }
  }

  path(name, y) {
    let text = "", pen = false;
    this.data[name].forEach((value, i) => {
      const second = this.seconds[i];
      if (value === null || second < this.range[0] || second > this.range[1]) { pen = false; return; }
      if (pen && second - this.seconds[i - 1] > 60 * Math.max(1, this.data.width || 1)) pen = false;
      text += (pen ? "L" : "M") + this.x(second).toFixed(1) + " " + y(value).toFixed(1);
      pen = true;
    });
    return text;
  }
}

for (const holder of document.querySelectorAll(".board")) new Board(holder);
for (const box of document.querySelectorAll(".filters input")) {
  box.addEventListener("change", () => {
    for (const finding of document.querySelectorAll(".finding." + box.value)) finding.hidden = !box.checked;
  });
}
