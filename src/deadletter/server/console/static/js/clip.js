/** A button that copies the text of the element before it, also over plain HTTP. */
class Copy extends HTMLElement {
  connectedCallback() {
    this.hidden = false;
    this.addEventListener("click", () => this.copy());
  }

  async copy() {
    const text = this.dataset.text ?? this.previousElementSibling?.textContent ?? "";
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
