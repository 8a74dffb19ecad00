/**
 * The content of the dialog. It comes from the server: when it arrives, the dialog opens;
 * when its form was accepted, the dialog closes; the focus returns to what opened it.
 */
class Dialog extends HTMLElement {
  connectedCallback() {
    const dialog = this.closest("dialog");
    if (!dialog || dialog.open) return;
    const opener = document.activeElement;
    dialog.showModal();
    dialog.addEventListener(
      "close",
      () => {
        dialog.querySelector("[data-body]")?.replaceChildren();
        if (opener instanceof HTMLElement && opener.isConnected) opener.focus();
      },
      { once: true },
    );
  }
}

document.addEventListener("click", (event) => {
  const target = event.target;
  if (!(target instanceof Element)) return;
  const dialog = target.closest("dialog");
  if (target.closest("[data-close]") || target === dialog) dialog?.close();
  for (const menu of document.querySelectorAll("details.menu[open]")) {
    if (!menu.contains(target)) menu.removeAttribute("open");
  }
});

document.addEventListener("keydown", (event) => {
  if (event.key !== "Escape") return;
  for (const menu of document.querySelectorAll("details.menu[open]")) {
    menu.removeAttribute("open");
    menu.querySelector("summary")?.focus();
  }
});

document.addEventListener("htmx:after:request", (event) => {
  const { sourceElement, request, response } = event.detail.ctx;
  const wasAccepted = request.method !== "GET" && response.status < 300;
  if (wasAccepted && !sourceElement.matches("[data-stays]")) sourceElement.closest("dialog")?.close();
});

customElements.define("dlq-dialog", Dialog);
