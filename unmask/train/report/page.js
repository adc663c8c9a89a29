"use strict";
// The curves: draws each chart at the width it has, and lets the reader point at values. Data comes from the JSON element
// of the page; text from it is only ever set as textContent.
const data = JSON.parse(document.getElementById("data").textContent);
const LEFT = 52, RIGHT = 14, TOP = 10, BOTTOM = 26;
const state = { log: false, smoothing: 0.3, step: null, chart: null };

function svg(name, attributes, parent) {
  const element = document.createElementNS("http://www.w3.org/2000/svg", name);
  for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
  if (parent) parent.append(element);
  return element;
}

function html(name, className, text, parent) {
  const element = document.createElement(name);
  if (className) element.className = className;
  if (text !== undefined) element.textContent = text;
  if (parent) parent.append(element);
  return element;
}

function percent(share) {
  return (100 * share).toFixed(share && share < 0.01 ? 2 : 1) + " %";
}

function written(value, share) {
  if (share) return percent(value);
  const size = Math.abs(value);
  if (size >= 1e4) return Math.round(value).toLocaleString("en");
  return size && size < 1e-3 ? value.toExponential(2) : String(Number(value.toPrecision(4)));
}

function shortCount(value) {
  for (const [size, letter] of [[1e9, " G"], [1e6, " M"], [1e3, " k"]]) {
    if (value >= size) return Number((value / size).toPrecision(3)) + letter;
  }
  return String(value);
}

function niceTicks(low, high, wanted) {
  const raw = (high - low) / wanted, power = 10 ** Math.floor(Math.log10(raw));
  const step = Math.max(1, power * [1, 2, 5, 10].find((factor) => power * factor >= raw * 0.999));
  const ticks = [];
  for (let i = Math.ceil(low / step); i * step <= high; i++) ticks.push(i * step);
  return ticks;
}

function logTicks(low, high, width) {
  const ticks = [];
  for (let power = 1; power <= high; power *= 10) {
    for (const factor of Math.log10(high / low) * 90 < width ? [1, 2, 5] : [1]) {
      if (power * factor >= low && power * factor <= high) ticks.push(power * factor);
    }
  }
  return ticks;
}

// A running mean whose weight fades exponentially with the distance along the axis, to both sides, so that nothing lags.
// A point counts by the room it takes on the axis: early ones lie close together and must not outweigh the rest.
function smooth(places, values) {
  const there = values.map((_, i) => i).filter((i) => values[i] !== null);
  const x = there.map((i) => places[i]), y = there.map((i) => values[i]);
  const room = x.map((_, i) => Math.max((x[Math.min(i + 1, x.length - 1)] - x[Math.max(i - 1, 0)]) / 2, 1e-9));
  const ahead = faded(x, y, room);
  const back = faded(x.map((at) => -at).reverse(), [...y].reverse(), [...room].reverse()).reverse();
  const result = values.map(() => null);
  there.forEach((place, i) => {
    result[place] = (ahead[i][0] + back[i][0] - y[i] * room[i]) / (ahead[i][1] + back[i][1] - room[i]);
  });
  return result;
}

function faded(x, y, room) {
  const reach = 0.06 * state.smoothing ** 2;
  let total = 0, weight = 0;
  return x.map((at, i) => {
    const keep = i ? Math.exp((x[i - 1] - at) / reach) : 0;
    total = total * keep + y[i] * room[i];
    weight = weight * keep + room[i];
    return [total, weight];
  });
}

class Chart {
  constructor(figure, views) {
    this.figure = figure;
    this.views = views;
    this.view = views[0];
    this.plot = figure.querySelector(".plot");
    this.buttons = [...figure.querySelectorAll(".views button")];
    this.buttons.forEach((button, i) => button.addEventListener("click", () => this.choose(i)));
    for (const kind of ["pointermove", "pointerdown"]) {
      this.plot.addEventListener(kind, (event) => point(this.stepAt(event.clientX), this));
    }
    this.plot.addEventListener("pointerleave", () => point(null));
    this.plot.addEventListener("blur", () => point(null));
    this.plot.addEventListener("keydown", (event) => this.move(event));
    this.width = 0;
    new ResizeObserver(() => {
      if (Math.abs(this.plot.clientWidth - this.width) > 1) this.draw();
    }).observe(this.plot);
  }

  choose(i) {
    this.view = this.views[i];
    this.buttons.forEach((button, j) => button.setAttribute("aria-pressed", String(i === j)));
    const level = this.figure.querySelector(".legend .level");
    if (level) level.hidden = !this.view.reference;
    this.draw();
  }

  steps(table) { return data.tables[table].step; }

  // Where a step lies along the axis, 0 to 1.
  along(step) {
    const [low, high] = this.span;
    if (!state.log) return (step - low) / (high - low);
    return Math.log(Math.max(step, low) / low) / Math.log(high / low);
  }

  measure() {
    const all = [...this.steps("steps"), ...this.steps("evaluations")];
    let low = all.reduce((a, b) => Math.min(a, b)), high = all.reduce((a, b) => Math.max(a, b));
    if (state.log) low = Math.max(low, 1);
    this.span = [low, Math.max(high, low + 1)];
    this.width = Math.max(this.plot.clientWidth, 200);
    this.height = this.figure.classList.contains("wide") ? Math.min(340, 200 + this.width * 0.13) : 210;
  }

  x(step) { return LEFT + this.along(step) * (this.width - LEFT - RIGHT); }

  y(value) {
    const { low, high } = this.view, inside = Math.min(Math.max(value, low), high);
    return this.height - BOTTOM - (inside - low) / (high - low) * (this.height - TOP - BOTTOM);
  }

  draw() {
    this.measure();
    const picture = svg("svg", { viewBox: `0 0 ${this.width} ${this.height}`, role: "img" });
    picture.setAttribute("aria-label", this.figure.querySelector("h3").textContent + " over the steps");
    this.axes(picture);
    this.lines = this.view.lines.map(([table, name, label], place) => {
      const [mean, low, high] = data.tables[table].series[name];
      const steps = this.steps(table);
      const noisy = table === "steps" && !this.view.exact && state.smoothing > 0;
      const inside = (value) => value === null ? null : Math.min(value, this.view.high);
      const smoothed = noisy ? smooth(steps.map((step) => this.along(step)), mean.map(inside)) : mean;
      return { table, label, place, steps, mean, low: low || mean, high: high || mean, banded: Boolean(low), smoothed };
    });
    this.lines.forEach((line) => this.curve(picture, line));
    this.over = svg("g", {}, picture);
    this.plot.replaceChildren(picture);
    this.reading = html("div", "reading", undefined, this.plot);
    this.show();
  }

  axes(picture) {
    const right = this.width - RIGHT;
    for (const [value, label] of this.view.ticks) {
      const y = this.y(value);
      svg("line", { class: "grid", x1: LEFT, x2: right, y1: y, y2: y }, picture);
      svg("text", { class: "tick", x: LEFT - 7, y, dy: "0.32em", "text-anchor": "end" }, picture).textContent = label;
    }
    svg("text", { class: "tick", x: LEFT - 7, y: this.height - 8, "text-anchor": "end" }, picture).textContent = "step";
    const [low, high] = this.span;
    const ticks = state.log ? logTicks(low, high, this.width) : niceTicks(low, high, Math.max(2, this.width / 110));
    for (const step of ticks) {
      const label = svg("text", { class: "tick", x: Math.min(this.x(step), right - 4), y: this.height - 8, "text-anchor": "middle" }, picture);
      label.textContent = shortCount(step);
    }
    for (const [kind, steps] of [["resume", data.resumes], ["phase", data.phases]]) {
      for (const step of steps) {
        svg("line", { class: kind, x1: this.x(step), x2: this.x(step), y1: TOP, y2: this.height - BOTTOM }, picture);
      }
    }
    if (this.view.reference) {
      const y = this.y(this.view.reference[0]);
      svg("line", { class: "reference", x1: LEFT, x2: right, y1: y, y2: y }, picture);
    }
  }

  curve(picture, line) {
    const there = line.steps.map((_, i) => i).filter((i) => line.mean[i] !== null);
    const path = (values, order) => order.map((i) => `${this.x(line.steps[i]).toFixed(1)} ${this.y(values[i]).toFixed(1)}`).join("L");
    if (line.banded) {
      const back = [...there].reverse();
      svg("path", { class: `band tone${line.place}`, d: `M${path(line.high, there)}L${path(line.low, back)}Z` }, picture);
    }
    if (line.smoothed !== line.mean) {
      svg("path", { class: `line faded tone${line.place}`, d: "M" + path(line.mean, there) }, picture);
    }
    svg("path", { class: `line tone${line.place}`, d: "M" + path(line.smoothed, there) }, picture);
    if (there.length <= 40) {
      there.forEach((i) => svg("circle", { class: `dot tone${line.place}`, cx: this.x(line.steps[i]), cy: this.y(line.mean[i]), r: 3 }, picture));
    }
  }

  stepAt(clientX) {
    const box = this.plot.getBoundingClientRect(), [low, high] = this.span;
    const share = Math.min(Math.max((clientX - box.left - LEFT) / (this.width - LEFT - RIGHT), 0), 1);
    return state.log ? low * (high / low) ** share : low + share * (high - low);
  }

  move(event) {
    const ways = { ArrowLeft: -1, ArrowRight: 1, PageDown: -20, PageUp: 20, Home: -1e9, End: 1e9 };
    if (event.key === "Escape") point(null);
    if (!(event.key in ways)) return;
    event.preventDefault();
    const steps = this.lines[0].steps, here = state.step === null ? steps.length : nearest(steps, state.step);
    point(steps[Math.min(Math.max(here + ways[event.key], 0), steps.length - 1)], this);
  }

  show() {
    this.over.replaceChildren();
    this.reading.hidden = state.chart !== this;
    if (state.step === null) return;
    const main = this.lines[0], at = main.steps[nearest(main.steps, state.step)];
    svg("line", { class: "cross", x1: this.x(at), x2: this.x(at), y1: TOP, y2: this.height - BOTTOM }, this.over);
    this.reading.replaceChildren();
    html("b", "", "step " + at.toLocaleString("en"), this.reading);
    for (const line of this.lines) this.read(line, state.step);
    const x = this.x(at), wide = this.reading.offsetWidth;
    this.reading.style.left = (x + 14 + wide > this.width ? Math.max(x - 14 - wide, 0) : x + 14) + "px";
  }

  read(line, step) {
    const i = nearest(line.steps, step);
    if (i < 0 || line.mean[i] === null) return;
    svg("circle", { class: `dot tone${line.place}`, cx: this.x(line.steps[i]), cy: this.y(line.smoothed[i]), r: 4 }, this.over);
    const row = html("div", "", undefined, this.reading);
    html("i", `tone${line.place}`, undefined, row);
    const share = this.view.share, range = line.low[i] === line.high[i] ? "" : ` (${written(line.low[i], share)} – ${written(line.high[i], share)})`;
    const when = line.table === "evaluations" ? ` at step ${line.steps[i].toLocaleString("en")}` : "";
    row.append(`${line.label} ${written(line.mean[i], share)}${range}${when}`);
  }
}

function nearest(sorted, value) {
  let low = 0, high = sorted.length - 1;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (sorted[middle] < value) low = middle + 1; else high = middle;
  }
  return low > 0 && value - sorted[low - 1] < sorted[low] - value ? low - 1 : low;
}

const pictures = [...document.querySelectorAll("#curves .chart")].map((figure, i) => new Chart(figure, data.charts[i]));

// Every chart marks the step; only the one pointed at spells its values out.
function point(step, chart = null) {
  Object.assign(state, { step, chart });
  pictures.forEach((chart) => chart.show());
}

function listen(id, event, act) {
  const element = document.getElementById(id);
  if (element) element.addEventListener(event, () => act(element));
}

document.documentElement.classList.add("scripted");
listen("log-steps", "change", (box) => { state.log = box.checked; pictures.forEach((chart) => chart.draw()); });
listen("smoothing", "input", (slider) => { state.smoothing = slider.value / 100; pictures.forEach((chart) => chart.draw()); });
pictures.forEach((chart) => chart.draw());
addEventListener("beforeprint", () => document.querySelectorAll("details").forEach((fold) => { fold.open = true; }));
