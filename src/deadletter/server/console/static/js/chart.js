/**
 * A chart on which one chooses a span: by dragging, or with its two handles and the keys.
 * The span goes into the fields below the chart, whose form asks the server what it holds.
 */
const SVG = document.querySelector("svg").namespaceURI; // of the icons
const DRAG = 4; // pixels from which a press is a drag
const [TOP, HEIGHT] = [18, 132]; // of the plot, as the server draws it

class Chart extends HTMLElement {
  connectedCallback() {
    this.over ??= make("svg", { class: "chart-over", height: TOP + HEIGHT });
    this.span = make("rect", { class: "chosen-span", y: TOP, height: HEIGHT, width: 0 });
    this.line = make("line", { class: "here", y1: TOP, y2: TOP + HEIGHT });
    this.word = make("text", { class: "axis", y: TOP + 12 });
    this.edges = ["Beginning of the span", "End of the span"].map((label) => this.edge(label));
    this.over.replaceChildren(this.span, this.line, this.word, ...this.edges);
    this.append(this.over);
    const heard = { pointermove: "move", pointerdown: "press", pointerup: "release", keydown: "key" };
    for (const name in heard) this.over.addEventListener(name, (event) => this[heard[name]](event));
    this.over.addEventListener("pointerleave", () => this.point(null));
    this.addEventListener("htmx:after:swap", () => this.draw());
    this.chosen = this.fields().map((field) => Date.parse(`${field?.value}Z`) / 1000);
    this.point(null);
    this.draw();
  }

  edge(label) {
    const shape = { class: "edge", width: 4, height: HEIGHT, y: TOP, rx: 2, tabindex: 0 };
    return make("rect", { ...shape, role: "slider", "aria-label": label, "aria-valuemin": 0 });
  }

  fields() {
    return [document.getElementById("span-from"), document.getElementById("span-to")];
  }

  /** The chart may have been drawn anew: its scale is read each time. */
  get scale() {
    const { since, step, totals } = this.querySelector("svg.chart").dataset;
    const numbers = totals.split(" ");
    return { since: Number(since), step: Number(step), numbers, steps: numbers.length };
  }

  at(event) {
    const { left, width } = this.over.getBoundingClientRect();
    const { steps } = this.scale;
    return Math.min(Math.max(Math.floor(((event.clientX - left) / width) * steps), 0), steps - 1);
  }

  press(event) {
    if (event.button !== 0 || event.target.matches(".edge:focus")) return;
    this.from = { x: event.clientX, place: this.at(event) };
    this.over.setPointerCapture(event.pointerId);
  }

  move(event) {
    const place = this.at(event);
    this.point(place);
    if (!this.from || Math.abs(event.clientX - this.from.x) < DRAG) return;
    this.choose(Math.min(this.from.place, place), Math.max(this.from.place, place) + 1);
    this.from.isDragged = true;
  }

  release() {
    if (this.from?.isDragged) this.ask();
    this.from = null;
  }

  key(event) {
    const which = this.edges.indexOf(event.target);
    if (which < 0) return;
    const { steps } = this.scale;
    const places = this.places() ?? [0, steps];
    const far = event.shiftKey ? 12 : 1;
    const moved = { ArrowRight: far, ArrowUp: far, ArrowLeft: -far, ArrowDown: -far, Home: -steps, End: steps };
    if (event.key === "Enter") this.ask();
    else if (event.key in moved) {
      const other = places[1 - which];
      const place = Math.min(Math.max(places[which] + moved[event.key], 0), steps);
      places[which] = which ? Math.max(place, other + 1) : Math.min(place, other - 1);
      this.choose(...places);
      this.point(null);
    } else return;
    event.preventDefault();
  }

  choose(first, end) {
    const { since, step } = this.scale;
    this.chosen = [since + first * step, since + end * step]; // seconds
    this.draw();
  }

  places() {
    const { since, step, steps } = this.scale;
    const [first, end] = this.chosen.map((at) => Math.round((at - since) / step));
    return end > 0 && first < steps ? [Math.max(first, 0), Math.min(end, steps)] : null; // or NaN
  }

  /** Ask the server what the span holds. */
  ask() {
    const fields = this.fields();
    fields.forEach((field, which) => (field.value = stamp(this.chosen[which])));
    fields[0].form.requestSubmit();
  }

  draw() {
    const { since, step, steps } = this.scale;
    const places = this.places();
    const [first, end] = places ?? [0, steps];
    const share = (place) => `${(place / steps) * 100}%`;
    put(this.span, { x: share(first), width: places ? share(end - first) : 0 });
    for (const [which, place] of [first, end].entries()) {
      const edge = this.edges[which];
      const time = `${stamp(since + place * step).replace("T", " ")} UTC`;
      put(edge, { x: share(place), transform: `translate(${which ? -4 : 0} 0)` });
      put(edge, { "aria-valuemax": steps, "aria-valuenow": place, "aria-valuetext": time });
      edge.classList.toggle("unset", !places);
    }
  }

  /** Show the number of the step under the pointer. */
  point(place) {
    for (const one of [this.line, this.word]) one.toggleAttribute("hidden", place === null);
    if (place === null) return;
    const { since, step, numbers, steps } = this.scale;
    const x = ((place + 0.5) / steps) * 100;
    put(this.line, { x1: `${x}%`, x2: `${x}%` });
    const [dx, anchor] = x > 70 ? [-6, "end"] : [6, "start"];
    put(this.word, { x: `${x}%`, dx, "text-anchor": anchor });
    const at = stamp(since + place * step);
    const time = step < 3600 ? at.slice(11) : at.slice(5).replace("T", " ");
    const number = numbers[place] === "-" ? "unknown" : Number(numbers[place]).toLocaleString("en");
    this.word.textContent = `${time}: ${number}`;
  }
}

function make(name, attributes) {
  return put(document.createElementNS(SVG, name), attributes);
}

function put(element, attributes) {
  for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
  return element;
}

function stamp(seconds) {
  return new Date(seconds * 1000).toISOString().slice(0, 16);
}

customElements.define("dlq-chart", Chart);
