/**
 * The search field: completions of the server as one types. Arrows move, Enter and Tab take
 * the chosen one, Escape closes, a second one takes back what was typed, a third leaves.
 */
const PATIENCE = 120; // milliseconds after the last key

class Search extends HTMLElement {
  connectedCallback() {
    this.field = this.querySelector("input");
    this.list = document.createElement("ul");
    this.list.id = "search-options";
    this.list.className = "options";
    this.list.hidden = true;
    this.list.setAttribute("role", "listbox");
    this.list.setAttribute("aria-label", "Completions");
    this.append(this.list);
    this.field.setAttribute("role", "combobox");
    this.field.setAttribute("aria-autocomplete", "list");
    this.field.setAttribute("aria-controls", this.list.id);
    this.close();
    this.field.addEventListener("keydown", (event) => this.press(event));
    this.field.addEventListener("input", () => this.later());
    this.field.addEventListener("focus", () => this.field.value === "" && this.later());
    this.field.addEventListener("blur", () => this.close());
    this.list.addEventListener("pointerdown", (event) => {
      event.preventDefault(); // the field keeps the focus
      const option = event.target.closest("[role=option]");
      if (option) this.take(option);
    });
  }

  get options() {
    return [...this.list.querySelectorAll("[role=option]")];
  }

  later() {
    clearTimeout(this.timer);
    this.timer = setTimeout(() => this.ask(), PATIENCE);
  }

  /** Ask for completions, never twice at once: what was typed meanwhile is asked after. */
  async ask() {
    if (this.isAsking) {
      this.isOutdated = true;
      return;
    }
    this.isAsking = true;
    const { value, selectionStart } = this.field;
    const at = [...value.slice(0, selectionStart)].length; // characters as the server counts
    const query = new URLSearchParams({ q: value, at });
    const target = { source: this.list, target: this.list, swap: "innerHTML" };
    try {
      await globalThis.htmx.ajax("GET", `/search/suggest?${query}`, target);
    } finally {
      this.isAsking = false;
    }
    if (this.isOutdated) {
      this.isOutdated = false;
      this.later();
    }
    if (this.field === document.activeElement && this.options.length) this.open();
    else this.close();
  }

  open() {
    this.list.hidden = false;
    this.field.setAttribute("aria-expanded", "true");
    this.select(-1);
  }

  close() {
    clearTimeout(this.timer);
    this.list.hidden = true;
    this.field.setAttribute("aria-expanded", "false");
    this.select(-1);
  }

  select(at) {
    this.at = at;
    for (const [place, option] of this.options.entries()) {
      option.setAttribute("aria-selected", String(place === at));
      if (place === at) option.scrollIntoView({ block: "nearest" });
    }
    if (at < 0) this.field.removeAttribute("aria-activedescendant");
    else this.field.setAttribute("aria-activedescendant", this.options[at].id);
  }

  press(event) {
    const options = this.options;
    const isOpen = !this.list.hidden && options.length > 0;
    const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    const chosen = isOpen ? options[this.at] : undefined;
    if (step && isOpen) this.select((this.at + step + options.length + (this.at < 0 && step < 0)) % options.length);
    else if (event.key === "ArrowDown") this.ask();
    else if ((event.key === "Enter" || event.key === "Tab") && chosen) this.take(chosen);
    else if (event.key === "Escape") this.escape(isOpen);
    else return;
    event.preventDefault();
  }

  escape(isOpen) {
    if (isOpen) this.close();
    else if (this.field.value === this.field.defaultValue) this.field.blur();
    else this.field.value = this.field.defaultValue;
  }

  /** Put a completion into the text, and ask for the next one where there is more to say. */
  take(option) {
    const { text, start, end } = option.dataset;
    const characters = [...this.field.value];
    const before = characters.slice(0, Number(start)).join("") + text;
    const goesOn = text.endsWith(":") || text.endsWith(".");
    const after = characters.slice(Number(end)).join("");
    const gap = goesOn || after.startsWith(" ") ? "" : " ";
    this.field.value = before + gap + after;
    this.field.setSelectionRange(before.length + gap.length, before.length + gap.length);
    this.close();
    if (goesOn) this.ask();
  }
}

customElements.define("dlq-search", Search);
