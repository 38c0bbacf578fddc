"use strict";
// Pointing at a plot shows its numbers; clicking a name in a legend hides that run. The page is complete without this.
(() => {
  const SVG = "http://www.w3.org/2000/svg";
  const off = new Set();

  // Hidden runs fade everywhere: in plots, legends and tables.
  const keys = [...document.querySelectorAll(".key[data-run]")];
  const toggle = run => {
    off.has(run) ? off.delete(run) : off.add(run);
    for (const part of document.querySelectorAll("[data-run]")) part.classList.toggle("off", off.has(part.dataset.run));
    for (const key of keys) key.setAttribute("aria-pressed", !off.has(key.dataset.run));
  };
  for (const key of keys) {
    key.setAttribute("role", "button");
    key.setAttribute("aria-pressed", "true");
    key.tabIndex = 0;
    key.title = "Click to hide or show this run in all plots";
    key.addEventListener("click", () => toggle(key.dataset.run));
    key.addEventListener("keydown", event => {
      if (event.key !== "Enter" && event.key !== " ") return;
      event.preventDefault();
      toggle(key.dataset.run);
    });
  }

  const tip = document.createElement("div");
  tip.className = "tip";
  tip.setAttribute("role", "status");
  tip.hidden = true;
  document.body.append(tip);
  const add = (parent, tag, text = "") => {
    const child = document.createElement(tag);
    child.textContent = text; // never as HTML: names are not trusted
    parent.append(child);
    return child;
  };
  const shown = value => Math.abs(value) >= 1e5 || (value && Math.abs(value) < 1e-3)
    ? value.toExponential(2).replace("-", "−") : String(+value.toPrecision(4)).replace("-", "−");

  const place = ([low, high, logarithmic], from, to) => {
    const scale = logarithmic ? Math.log10 : Number;
    return value => from + (to - from) * (scale(value) - scale(low)) / (scale(high) - scale(low));
  };

  class Plot {
    constructor(svg, panels) {
      this.svg = svg;
      this.panels = panels.map(panel => ({
        ...panel, across_at: place(panel.x, panel.box[0], panel.box[2]), up_at: place(panel.y, panel.box[3], panel.box[1]),
      }));
      this.marks = document.createElementNS(SVG, "g");
      svg.append(this.marks);
      svg.setAttribute("tabindex", "0");
      svg.addEventListener("pointermove", event => this.point(event));
      svg.addEventListener("pointerdown", event => this.point(event));
      svg.addEventListener("pointerleave", () => this.clear());
      svg.addEventListener("blur", () => this.clear());
      svg.addEventListener("keydown", event => this.press(event));
    }

    // All visible points of a panel; in plots of single points, they are picked one by one.
    points(panel) {
      return panel.series.filter(one => !off.has(one.run)).flatMap(one => one.x.map((x, i) => (
        { one, x, y: one.y[i], at: panel.across_at(x), up: panel.up_at(one.y[i]) })))
        .filter(p => p.at >= panel.box[0] - 1 && p.at <= panel.box[2] + 1);
    }

    point(event) {
      const at = new DOMPoint(event.clientX, event.clientY).matrixTransform(this.svg.getScreenCTM().inverse());
      const panel = this.panels.find(({ box: [left, top, right, bottom] }) =>
        at.x >= left - 8 && at.x <= right + 8 && at.y >= top - 8 && at.y <= bottom + 8);
      const points = panel ? this.points(panel) : [];
      if (!points.length) return this.clear();
      const single = panel.series.every(one => one.x.length === 1);
      const far = p => single ? Math.hypot(p.at - at.x, p.up - at.y) : Math.abs(p.at - at.x);
      this.show(panel, points.reduce((best, p) => far(p) < far(best) ? p : best), single);
    }

    press(event) {
      const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key], row = { ArrowDown: 1, ArrowUp: -1 }[event.key];
      if (event.key === "Escape") return this.clear();
      if (!step && !row) return;
      event.preventDefault();
      const count = this.panels.length, panel = this.panels[((this.last?.at ?? 0) + (row ?? 0) + count) % count];
      const single = panel.series.every(one => one.x.length === 1);
      const points = this.points(panel).sort((a, b) => a.x - b.x)
        .filter((p, i, all) => single || !i || p.x !== all[i - 1].x);
      if (!points.length) return this.clear();
      const now = points.findIndex(p => p.x === this.last?.x && (!single || p.one === this.last.one));
      this.show(panel, points[Math.min(Math.max(now < 0 ? points.length - 1 : now + (step ?? 0), 0), points.length - 1)], single);
    }

    show(panel, best, single) {
      const together = single ? [best] : this.points(panel).filter(p => p.x === best.x).sort((a, b) => a.up - b.up);
      this.last = { at: this.panels.indexOf(panel), x: best.x, one: best.one };
      this.marks.replaceChildren();
      const draw = (tag, attributes) => {
        const mark = document.createElementNS(SVG, tag);
        for (const [name, value] of Object.entries(attributes)) mark.setAttribute(name, value);
        this.marks.append(mark);
      };
      const [left, top, right, bottom] = panel.box;
      if (!single) draw("path", { class: "cursor", d: `M${best.at} ${top}V${bottom}` });
      for (const p of together)
        if (p.up >= top - 1 && p.up <= bottom + 1) draw("circle", { class: "dot", cx: p.at, cy: p.up, r: 3, style: `fill: ${p.one.colour}` });
      tip.replaceChildren();
      add(tip, "b", [panel.title, single ? "" : `${panel.across} ${shown(best.x)}`].filter(Boolean).join(", "));
      for (const p of together) {
        const line = add(tip, "span");
        add(line, "u").style.background = p.one.colour;
        add(line, "span", p.one.name);
        if (!single) add(line, "i", shown(p.y)); // the name of a single point contains its numbers
      }
      tip.hidden = false;
      const corner = new DOMPoint(best.at, single ? best.up : top).matrixTransform(this.svg.getScreenCTM());
      const over = corner.x + 14 + tip.offsetWidth > innerWidth;
      tip.style.left = `${Math.max(over ? corner.x - 14 - tip.offsetWidth : corner.x + 14, 4)}px`;
      tip.style.top = `${Math.min(Math.max(corner.y, 4), Math.max(innerHeight - tip.offsetHeight - 4, 4))}px`;
    }

    clear() {
      this.marks.replaceChildren();
      tip.hidden = true;
    }
  }

  for (const data of document.querySelectorAll("script[type='application/json']")) {
    const panels = JSON.parse(data.textContent);
    if (panels.length) new Plot(data.parentElement.querySelector("svg"), panels);
  }
  addEventListener("beforeprint", () => document.querySelectorAll("details").forEach(part => { part.open = true; }));
  addEventListener("scroll", () => { tip.hidden = true; }, { passive: true });
})();
