// Runs before the first paint, so that nothing flashes: theme, density and times as chosen.
(() => {
  const root = document.documentElement;
  root.dataset.scripts = "on";
  try {
    for (const name of ["theme", "density", "times", "keys", "hide"]) {
      const value = localStorage.getItem(`dlq.${name}`);
      if (value) root.dataset[name] = value;
    }
  } catch {
    // Storage is blocked: the defaults of the system are used.
  }
})();
