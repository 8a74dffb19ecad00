/** The search field: Escape takes back what was typed, a second one leaves the field. */
class Search extends HTMLElement {
  connectedCallback() {
    this.field = this.querySelector("input");
    this.field.addEventListener("keydown", (event) => this.press(event));
  }

  press(event) {
    if (event.key !== "Escape") return;
    event.preventDefault();
    if (this.field.value === this.field.defaultValue) this.field.blur();
    else this.field.value = this.field.defaultValue;
  }
}

customElements.define("dlq-search", Search);
