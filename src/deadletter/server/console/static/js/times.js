/** Ages that grow while one looks, and times in the zone of the browser if that is chosen. */
const MINUTE = 60;
const HOUR = 60 * MINUTE;
const DAY = 24 * HOUR;
// The clock of the server counts: that of the browser may be wrong.
const offset = Date.parse(document.documentElement.dataset.now) - Date.now() || 0;

function words(at, isLocal) {
  const seconds = (Date.now() + offset - at) / 1000;
  if (seconds >= 0 && seconds < DAY) return seconds < 1 ? "now" : `${span(seconds)} ago`;
  if (seconds < 0 && seconds > -DAY) return `in ${span(Math.max(-seconds, 1))}`;
  if (!isLocal) return null;
  return at.toLocaleString(undefined, {
    day: "numeric",
    month: "short",
    hour: "2-digit",
    minute: "2-digit",
  });
}

function span(seconds) {
  if (seconds < MINUTE) return seconds < MINUTE - 0.5 ? `${Math.round(seconds)} s` : "1 min";
  if (seconds < HOUR) return `${Math.floor(seconds / MINUTE)} min`;
  return `${Math.floor(seconds / HOUR)} h`;
}

function update() {
  if (document.hidden) return;
  const isLocal = document.documentElement.dataset.times === "local";
  for (const time of document.querySelectorAll("time[data-ago]")) {
    const at = new Date(time.dateTime);
    const text = words(at, isLocal);
    if (text !== null && time.textContent !== text) time.textContent = text;
    if (isLocal) time.title = at.toLocaleString();
    else time.title = `${at.toISOString().replace("T", " ").slice(0, 19)} UTC`;
  }
}

setInterval(update, 5000);
document.addEventListener("dlq:chosen", update);
document.addEventListener("visibilitychange", update);
update();
