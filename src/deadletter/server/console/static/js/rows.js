/**
 * The rows of a table: `j` and `k` move, `x` chooses, `X` chooses up to here, `*` all.
 * Rows have a link of the class `row`; rows to choose have a box named `id`. A box with
 * `data-all` chooses all of them. With `data-list`, the rows are kept for the tab, so that
 * the page of a letter knows which ones were before and after it.
 */
class Rows extends HTMLElement {
  connectedCallback() {
    this.listener = (event) => this.press(event);
    this.onActed = (event) => this.acted(event);
    document.addEventListener("keydown", this.listener);
    document.addEventListener("htmx:after:request", this.onActed);
    this.addEventListener("change", (event) => this.change(event));
    this.addEventListener("htmx:after:swap", () => this.count());
    this.addEventListener("click", (event) => this.click(event));
    if (this.dataset.list !== undefined) {
      const paths = this.links.map((link) => link.getAttribute("href"));
      sessionStorage.setItem("dlq.list", JSON.stringify(paths));
    }
    this.count();
  }

  disconnectedCallback() {
    document.removeEventListener("keydown", this.listener);
    document.removeEventListener("htmx:after:request", this.onActed);
  }

  /** Nothing stays chosen once an act on it was done; the focus goes to what was chosen. */
  acted(event) {
    const { request, response } = event.detail.ctx;
    if (request.method === "GET" || !(response?.status < 300)) return;
    const chosen = this.boxes.find((box) => box.checked);
    for (const box of this.querySelectorAll("input[type=checkbox]")) box.checked = false;
    this.count();
    if (chosen) setTimeout(() => chosen.closest("tr").querySelector("a.row")?.focus());
  }

  change(event) {
    if (event.target.matches("[data-all]")) {
      for (const one of this.boxes) one.checked = event.target.checked;
    }
    this.count();
  }

  get links() {
    return [...this.querySelectorAll("tbody a.row")];
  }

  get boxes() {
    return [...this.querySelectorAll("tbody input[name=id]")];
  }

  press(event) {
    if (document.documentElement.dataset.keys === "off") return;
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    if (event.target instanceof Element && event.target.closest("input:not([type=checkbox]), textarea, select, dialog")) return;
    const links = this.links;
    const at = links.findIndex((link) => link.closest("tr").contains(document.activeElement));
    const box = links[at]?.closest("tr").querySelector("input[name=id]");
    const step = { j: 1, k: -1 }[event.key];
    if (event.key === "o") links[at]?.click();
    else if (step) links[Math.min(Math.max(at + step, 0), links.length - 1)]?.focus();
    else if (event.key === "x" && box) this.choose(box, !box.checked);
    else if (event.key === "X" && box) this.chooseTo(box);
    else if (event.key === "*") for (const one of this.boxes) this.choose(one, true);
    else return;
    event.preventDefault();
  }

  /** Shift chooses a span; the whole row leads where its link leads. */
  click(event) {
    const target = event.target;
    if (!(target instanceof HTMLElement)) return;
    if (target.matches("input[name=id]")) {
      if (event.shiftKey) this.chooseTo(target);
      this.anchor = target;
      return;
    }
    if (target.closest("a, button, input, label, summary")) return;
    if (!getSelection()?.isCollapsed) return;
    target.closest("tbody tr")?.querySelector("a.row")?.click();
  }

  choose(box, isChosen) {
    box.checked = isChosen;
    this.anchor = box;
    this.count();
  }

  chooseTo(box) {
    const boxes = this.boxes;
    const ends = [boxes.indexOf(this.anchor ?? box), boxes.indexOf(box)].sort((a, b) => a - b);
    for (const one of boxes.slice(ends[0], ends[1] + 1)) this.choose(one, true);
  }

  /** Show how many are chosen, in all elements with `data-chosen`. */
  count() {
    const chosen = this.boxes.filter((box) => box.checked);
    for (const box of this.boxes) box.closest("tr").setAttribute("aria-selected", box.checked);
    for (const one of this.querySelectorAll("[data-chosen]")) one.textContent = chosen.length;
    for (const one of this.querySelectorAll("[data-all]")) {
      one.hidden = false;
      one.checked = chosen.length > 0 && chosen.length === this.boxes.length;
      one.indeterminate = chosen.length > 0 && !one.checked;
    }
    for (const one of this.querySelectorAll(".two")) one.hidden = chosen.length !== 2;
    for (const bar of this.querySelectorAll(".chosen")) bar.hidden = !chosen.length;
  }
}

customElements.define("dlq-rows", Rows);
