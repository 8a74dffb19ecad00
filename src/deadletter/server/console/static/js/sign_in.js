/**
 * The sign-in over the page. It opens when a request says that the session has ended; after
 * that the page goes on with the new session: nothing typed is lost, and acts are sent again.
 */
import { renew } from "./session.js";

const door = document.getElementById("door");
let isAccepted = false; // the form was
let isDismissed = false; // parts that refresh by themselves do not ask again

/** Ask the server for the form; it opens when it arrives. */
export function ask() {
  if (!door || door.open || door.dataset.asked !== undefined) return;
  door.dataset.asked = "";
  const loaded = globalThis.htmx.ajax("GET", "/sign-in?part=dialog", { target: "#door-body", swap: "innerHTML" });
  loaded.finally(() => delete door.dataset.asked);
}

/** The form: opens the dialog that it is in. */
class SignIn extends HTMLElement {
  connectedCallback() {
    const opener = document.activeElement;
    if (!door.open) door.showModal();
    this.querySelector("input")?.focus();
    door.addEventListener(
      "close",
      () => {
        isDismissed = !isAccepted;
        door.querySelector("[data-body]").replaceChildren();
        if (opener instanceof HTMLElement && opener.isConnected) opener.focus();
      },
      { once: true },
    );
  }
}

/** The answer: the page goes on. A page of somebody else is loaded anew. */
class SignedIn extends HTMLElement {
  connectedCallback() {
    const { csrf, who, now, ends } = this.dataset;
    this.remove();
    if (who !== door.dataset.who) {
      location.reload();
      return;
    }
    document.body.setAttribute("hx-headers:inherited", JSON.stringify({ "X-CSRF-Token": csrf }));
    for (const field of document.querySelectorAll("input[name=csrf]")) field.value = csrf;
    for (const link of document.querySelectorAll(".problem [data-sign-in]")) link.closest(".problem").remove();
    door.close();
    renew(ends, now);
  }
}

document.addEventListener("htmx:after:request", (event) => {
  const { sourceElement, response } = event.detail.ctx;
  if (sourceElement.closest("#door")) isAccepted = response?.status === 200;
  else if (response?.status === 401) hear(sourceElement);
});

function hear(sourceElement) {
  if (isDismissed && sourceElement.matches("[data-live]")) return;
  ask();
}

document.addEventListener("dlq:session-over", ask);

// Somebody who went to another tab to sign in there comes back.
document.addEventListener("visibilitychange", () => {
  if (document.hidden || !door?.open) return;
  globalThis.htmx.ajax("GET", "/sign-in/again", { target: "#signed-in", swap: "innerHTML" });
});

customElements.define("dlq-sign-in", SignIn);
customElements.define("dlq-signed-in", SignedIn);
