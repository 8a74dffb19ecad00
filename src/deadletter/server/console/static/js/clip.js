/**
 * A button that copies a text, also over plain HTTP: the address of the page, the text that
 * it was given, or that of the element before it.
 */
class Copy extends HTMLElement {
  connectedCallback() {
    this.hidden = false;
    this.addEventListener("click", () => this.copy());
  }

  async copy() {
    const { address, text: given } = this.dataset;
    const found = given ?? this.previousElementSibling?.textContent ?? "";
    const text = address === undefined ? found : location.href;
    if (!(await written(text))) return;
    this.dataset.done = "";
    clearTimeout(this.timer);
    this.timer = setTimeout(() => delete this.dataset.done, 2000);
  }
}

/** Copy a text; return whether it worked. */
export async function written(text) {
  try {
    await navigator.clipboard.writeText(text);
    return true;
  } catch {
    // Without HTTPS there is no clipboard: copy from a field instead.
    const field = document.createElement("textarea");
    field.value = text;
    field.className = "unseen";
    document.body.append(field);
    field.select();
    const worked = document.execCommand("copy");
    field.remove();
    return worked;
  }
}

customElements.define("dlq-copy", Copy);
