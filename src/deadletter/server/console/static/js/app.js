// The entry of the console's scripts: security first, then the elements.
import "./badges.js";
import "./chart.js";
import "./clip.js";
import "./columns.js";
import "./dialog.js";
import "./flash.js";
import "./indent.js";
import "./keys.js";
import "./live.js";
import "./palette.js";
import "./once.js";
import "./preferences.js";
import "./replays.js";
import "./rows.js";
import "./search.js";
import "./sign_in.js";
import "./times.js";

const refuse = function () {
  throw new Error("the console runs no code from attributes");
};

/** HTML of this server's answers is the only HTML that scripts may insert. */
const policy = globalThis.trustedTypes?.createPolicy("dlq", { createHTML: (text) => text });

globalThis.htmx.registerExtension("dlq", {
  init(api) {
    api.initSecurity(policy, refuse, refuse);
  },
});

const digest = document.documentElement.dataset.digest;

document.addEventListener("htmx:before:request", (event) => {
  if (event.detail.ctx.sourceElement.matches("[data-live]")) return;
  document.getElementById("problem")?.replaceChildren();
});

document.addEventListener("htmx:after:request", (event) => {
  const now = event.detail.ctx.response?.headers.get("dlq-console");
  const updated = document.getElementById("updated");
  if (now && updated && now !== digest) updated.hidden = false;
});

document.addEventListener("htmx:error", (event) => {
  // Parts that refresh by themselves say on the live sign that the server is away.
  if (event.detail.ctx.sourceElement.matches("[data-live]")) return;
  const box = document.getElementById("problem");
  const away = document.getElementById("away");
  if (box && away) box.replaceChildren(away.content.cloneNode(true));
});
