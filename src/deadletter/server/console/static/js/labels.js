/** The words of an element that a key uses: of a button without its key, of a field its label. */
export function labelOf(element) {
  const copy = element.cloneNode(true);
  for (const key of copy.querySelectorAll("kbd")) key.remove();
  return (element.ariaLabel ?? "") || copy.textContent.trim() || element.labels?.[0]?.textContent.trim() || "";
}
