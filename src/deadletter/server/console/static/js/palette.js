/**
 * The palette: Ctrl or ⌘ with K. The server finds places for what is typed; acts are the
 * buttons of the page that are in sight, and do what the button does.
 */
import { labelOf } from "./labels.js";

class Palette extends HTMLElement {
  connectedCallback() {
    this.field = this.querySelector("input");
    this.found = this.querySelector("[role=listbox]");
    this.acts = [...document.querySelectorAll("main [data-key]")]
      .filter((button) => button.checkVisibility() && button.ariaDisabled !== "true")
      .map((button) => ({ button, text: labelOf(button) }));
    this.field.addEventListener("keydown", (event) => this.press(event));
    this.field.addEventListener("input", () => this.list());
    this.found.addEventListener("htmx:after:swap", () => this.list());
    this.list();
    this.field.focus();
  }

  get options() {
    return [...this.found.querySelectorAll("[role=option]")];
  }

  /** Put the acts of the page before the places, and choose the first of all. */
  list() {
    for (const old of this.found.querySelectorAll("[data-act]")) old.remove();
    const typed = this.field.value.trim().toLowerCase();
    const fitting = this.acts.filter(({ text }) => text.toLowerCase().includes(typed));
    for (const { button, text } of fitting.reverse()) {
      const option = document.createElement("button");
      option.type = "button";
      option.dataset.act = "";
      option.setAttribute("role", "option");
      option.tabIndex = -1;
      option.append(text);
      option.addEventListener("click", () => {
        this.closest("dialog")?.close();
        button.click();
      });
      this.found.prepend(option);
    }
    this.select(0);
  }

  select(at) {
    const options = this.options;
    this.at = Math.min(Math.max(at, 0), options.length - 1);
    for (const [place, option] of options.entries()) {
      option.id = `found-${place}`;
      option.setAttribute("aria-selected", String(place === this.at));
    }
    const chosen = options[this.at];
    if (chosen) {
      this.field.setAttribute("aria-activedescendant", chosen.id);
      chosen.scrollIntoView({ block: "nearest" });
    } else {
      this.field.removeAttribute("aria-activedescendant");
    }
  }

  press(event) {
    const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (step) this.select(this.at + step);
    else if (event.key === "Enter") this.options[this.at]?.click();
    else return;
    event.preventDefault();
  }
}

document.addEventListener("keydown", (event) => {
  if (event.key.toLowerCase() !== "k" || !(event.ctrlKey || event.metaKey)) return;
  if (event.altKey || event.shiftKey || document.querySelector("dialog[open]")) return;
  if (!document.getElementById("dialog-body")) return;
  event.preventDefault();
  globalThis.htmx.ajax("GET", "/palette?part=dialog", { target: "#dialog-body", swap: "innerHTML" });
});

customElements.define("dlq-palette", Palette);
