/** Numbers that change in a part which refreshes by itself are tinted once. */
const NUMBERS = ".number, .count, .tally, [data-number]";

const observer = new MutationObserver((records) => {
  for (const { target } of records) {
    const element = target instanceof Element ? target : target.parentElement;
    const number = element?.closest(NUMBERS);
    if (number?.closest("[data-live]")) flash(number);
  }
});

function flash(number) {
  if (number.classList.contains("flash")) return;
  number.classList.add("flash");
  setTimeout(() => number.classList.remove("flash"), 1200);
}

observer.observe(document.body, { characterData: true, childList: true, subtree: true });
