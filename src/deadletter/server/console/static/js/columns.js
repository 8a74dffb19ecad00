/** The columns of the list of letters: those that were unticked stay hidden in this browser. */
class Columns extends HTMLElement {
  connectedCallback() {
    this.hidden = false;
    const hidden = (document.documentElement.dataset.hide ?? "").split(" ");
    for (const box of this.querySelectorAll("input")) box.checked = !hidden.includes(box.value);
    this.addEventListener("change", () => this.keep());
  }

  keep() {
    const boxes = [...this.querySelectorAll("input")].filter((box) => !box.checked);
    const value = boxes.map((box) => box.value).join(" ");
    document.documentElement.dataset.hide = value;
    try {
      localStorage.setItem("dlq.hide", value);
    } catch {
      // Storage is blocked: the choice lasts for this page.
    }
  }
}

customElements.define("dlq-columns", Columns);
