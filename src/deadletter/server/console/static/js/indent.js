/** Ctrl or ⌘ with ] indents the lines of a field with `data-indents`; Tab moves on. */
const STEP = "  ";

document.addEventListener("keydown", (event) => {
  const field = event.target;
  if (event.key !== "]" || !(event.ctrlKey || event.metaKey) || !field.matches?.("[data-indents]")) return;
  event.preventDefault();
  const { selectionStart, selectionEnd, value } = field;
  const start = value.lastIndexOf("\n", selectionStart - 1) + 1;
  const lines = value.slice(start, selectionEnd).split("\n");
  field.setRangeText(lines.map((line) => STEP + line).join("\n"), start, selectionEnd, "end");
  field.setSelectionRange(selectionStart + STEP.length, selectionEnd + STEP.length * lines.length);
  field.dispatchEvent(new Event("input", { bubbles: true }));
});
