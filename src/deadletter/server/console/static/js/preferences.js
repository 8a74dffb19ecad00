/** The choices of one browser: theme, density, times, shortcuts. Nothing is sent. */
const DEFAULTS = { theme: "system", density: "comfortable", times: "utc", keys: "on" };

class Preferences extends HTMLElement {
  connectedCallback() {
    this.hidden = false;
    for (const input of this.querySelectorAll("input")) {
      input.checked = input.value === current(input.name);
    }
    this.addEventListener("change", (event) => choose(event.target.name, event.target.value));
  }
}

function current(name) {
  return document.documentElement.dataset[name] ?? DEFAULTS[name];
}

function choose(name, value) {
  document.documentElement.dataset[name] = value;
  try {
    localStorage.setItem(`dlq.${name}`, value);
  } catch {
    // Storage is blocked: the choice lasts for this page.
  }
  document.dispatchEvent(new Event("dlq:chosen"));
}

/** The shortcut `t`: the other theme. */
document.addEventListener("click", (event) => {
  if (!(event.target instanceof Element) || !event.target.closest("[data-theme-switch]")) return;
  const isDark =
    current("theme") === "dark" ||
    (current("theme") === "system" && matchMedia("(prefers-color-scheme: dark)").matches);
  const value = isDark ? "light" : "dark";
  choose("theme", value);
  const input = document.querySelector(`dlq-preferences input[name=theme][value=${value}]`);
  if (input) input.checked = true;
});

customElements.define("dlq-preferences", Preferences);
