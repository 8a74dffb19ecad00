/**
 * A plan of a replay: says anew what would happen whenever one of its fields changes. And
 * Space pauses the replay that one looks at.
 */
const CALM = 300; // milliseconds after the last change

class Plan extends HTMLElement {
  connectedCallback() {
    this.addEventListener("change", () => this.wait());
    this.addEventListener("input", () => this.wait());
    this.onRequest = (event) => this.hear(event.detail.ctx);
    document.addEventListener("htmx:after:request", this.onRequest);
  }

  disconnectedCallback() {
    clearTimeout(this.timer);
    document.removeEventListener("htmx:after:request", this.onRequest);
  }

  /** Verdicts have arrived: what would happen is another by now. */
  hear({ sourceElement, response }) {
    if (sourceElement.id === "verdicts" && response?.status === 200) this.wait();
  }

  wait() {
    clearTimeout(this.timer);
    this.timer = setTimeout(() => this.foretell(), CALM);
  }

  foretell() {
    const form = this.querySelector("form");
    const part = this.dataset.part;
    const fields = new URLSearchParams(new FormData(form));
    fields.delete("csrf");
    fields.set("part", part);
    if ([...form.elements].some((one) => one.validity?.rangeUnderflow || one.validity?.badInput)) return;
    const path = part === "count" ? "/replays/new" : location.pathname;
    globalThis.htmx.ajax("GET", `${path}?${fields}`, { target: `#${part}`, swap: "outerHTML" });
  }
}

class Space extends HTMLElement {
  connectedCallback() {
    this.listener = (event) => this.press(event);
    document.addEventListener("keydown", this.listener);
  }

  disconnectedCallback() {
    document.removeEventListener("keydown", this.listener);
  }

  press(event) {
    const isFree = [document.body, document.getElementById("main"), null].includes(document.activeElement);
    const isOff = document.documentElement.dataset.keys === "off";
    if (event.key !== " " || !isFree || isOff || document.querySelector("dialog[open]")) return;
    event.preventDefault();
    this.querySelector("button")?.click();
  }
}

customElements.define("dlq-plan", Plan);
customElements.define("dlq-space", Space);
