/** The list of keys: those of every page, and those that this page has at the moment. */
import { labelOf } from "./labels.js";

/** Show the keys that can be used now. */
export function listKeys(dialog) {
  for (const line of dialog.querySelectorAll("[data-needs]")) {
    line.hidden = !document.querySelector(line.dataset.needs);
  }
  const list = dialog.querySelector("[data-here]");
  list.replaceChildren(...[...keysHere()].map(([keys, text]) => lineOf(keys, text)));
  const others = [...dialog.querySelectorAll("[data-of-page] [data-needs]")];
  list.closest("[data-of-page]").hidden = !list.children.length && others.every((line) => line.hidden);
}

/** Return the words of each key of the page; of a key that is there twice, the first. */
function keysHere() {
  const found = new Map();
  for (const one of document.querySelectorAll("main [data-key], #notice [data-key]")) {
    const isThere = one.checkVisibility() || one.closest("details.menu, .chosen");
    if (isThere && !found.has(one.dataset.key)) found.set(one.dataset.key, labelOf(one));
  }
  return found;
}

function lineOf(keys, text) {
  const line = document.createElement("li");
  line.append(text, " ");
  for (const key of keys.split(" ")) {
    const shown = document.createElement("kbd");
    shown.textContent = key;
    line.append(shown);
  }
  return line;
}
