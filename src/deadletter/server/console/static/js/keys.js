/**
 * Shortcuts: an element with `data-key="g o"` is used when these keys are pressed one after
 * the other. A field gets the focus, everything else is clicked. Never while typing.
 */
import { listKeys } from "./keys_list.js";

const PATIENCE = 1000; // milliseconds between the keys of one shortcut

class Keys extends HTMLElement {
  connectedCallback() {
    this.pressed = "";
    this.listener = (event) => this.press(event);
    document.addEventListener("keydown", this.listener);
  }

  disconnectedCallback() {
    document.removeEventListener("keydown", this.listener);
  }

  press(event) {
    if (document.documentElement.dataset.keys === "off" || isTyping(event)) return;
    if (event.ctrlKey || event.metaKey || event.altKey || event.key.length > 1) return;
    const now = performance.now();
    const isLater = now - (this.at ?? 0) > PATIENCE;
    this.at = now;
    for (const keys of [isLater ? event.key : `${this.pressed} ${event.key}`, event.key]) {
      if (this.use(keys)) {
        event.preventDefault();
        this.pressed = "";
        return;
      }
    }
    this.pressed = event.key;
  }

  use(keys) {
    if (keys === "?") {
      const dialog = this.querySelector("dialog");
      if (dialog && !dialog.open && !document.querySelector("dialog[open]")) {
        listKeys(dialog);
        dialog.showModal();
      }
      return true;
    }
    const scope = document.querySelector("dialog[open]") ?? document;
    for (const found of scope.querySelectorAll(`[data-key="${CSS.escape(keys)}"]`)) {
      if (found.checkVisibility() || found.closest("nav, details.menu")) {
        if (found.matches("input, textarea, select")) {
          found.focus();
          found.select?.();
        } else {
          found.click();
        }
        return true;
      }
    }
    return false;
  }
}

/** Return whether a key belongs to a field or to a list of choices. */
function isTyping(event) {
  const target = event.target;
  return (
    target instanceof Element &&
    target.closest("input:not([type=checkbox], [type=radio]), textarea, select, [contenteditable]")
  );
}

customElements.define("dlq-keys", Keys);
