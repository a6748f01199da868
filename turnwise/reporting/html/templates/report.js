"use strict";
addEventListener("beforeprint", () => document.querySelectorAll("details").forEach(part => { part.open = true; }));
// Curves are read point by point: the pointer or the arrow keys choose an iteration, whose line is shown.
for (const figure of document.querySelectorAll("figure[data-values]")) {
  const values = JSON.parse(figure.dataset.values);
  const lines = Object.keys(values).map(at => figure.querySelector(`[id$="-iteration-${at}"]`));
  const said = figure.querySelector("figcaption");
  let chosen = -1;
  function choose(place) {
    if (chosen >= 0) lines[chosen].classList.remove("chosen");
    chosen = Math.max(0, Math.min(lines.length - 1, place));
    lines[chosen].classList.add("chosen");
    const [at, text] = Object.entries(values)[chosen];
    said.textContent = `iteration ${at}: ${text}`;
  }
  figure.addEventListener("keydown", event => {
    const step = {ArrowLeft: -1, ArrowRight: 1, Home: -lines.length, End: lines.length}[event.key];
    if (!step) return;
    event.preventDefault();
    choose(chosen < 0 ? (step > 0 ? 0 : lines.length) : chosen + step);
  });
  figure.addEventListener("pointermove", event => {
    const away = lines.map(line => {
      const box = line.getBoundingClientRect();
      return Math.abs((box.left + box.right) / 2 - event.clientX);
    });
    choose(away.indexOf(Math.min(...away)));
  });
}
