/**
 * Content of a dialog that is shown this once: neither Escape nor a click beside the dialog
 * closes it, only its own button.
 */
class Once extends HTMLElement {
  connectedCallback() {
    this.dialog = this.closest("dialog");
    if (!this.dialog) return;
    this.dialog.closedBy = "none";
    this.keep = (event) => event.preventDefault();
    this.ignore = (event) => {
      if (event.target === this.dialog) event.stopImmediatePropagation();
    };
    this.dialog.addEventListener("cancel", this.keep);
    document.addEventListener("click", this.ignore, { capture: true });
  }

  disconnectedCallback() {
    this.dialog?.removeAttribute("closedby");
    this.dialog?.removeEventListener("cancel", this.keep);
    document.removeEventListener("click", this.ignore, { capture: true });
  }
}

customElements.define("dlq-once", Once);
