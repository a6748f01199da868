"use strict";
const form = document.querySelector("form");
const episodes = [...document.querySelectorAll("article")];
const tasks = [...document.querySelectorAll("section.task")];
const shown = document.querySelector("output");
function isWanted(episode, wanted) {
  const facts = episode.dataset;
  for (const name of ["occasion", "mode", "success", "ending", "world", "task"])
    if (wanted[name] && facts[name] !== wanted[name]) return false;
  const policies = [wanted.policy, wanted.other_policy].filter(Boolean);
  if (policies.length && !policies.includes(facts.policy)) return false;
  if (facts.iteration !== undefined) {
    if (wanted.first && Number(facts.iteration) < Number(wanted.first)) return false;
    if (wanted.last && Number(facts.iteration) > Number(wanted.last)) return false;
  }
  if (wanted.low || wanted.high) {
    const low = wanted.low ? Number(wanted.low) : -Infinity, high = wanted.high ? Number(wanted.high) : Infinity;
    return (facts.advantages || "").split(" ").filter(Boolean).some(v => Number(v) >= low && Number(v) <= high);
  }
  return true;
}
function update() {
  const wanted = Object.fromEntries(new FormData(form));
  let count = 0;
  for (const episode of episodes) {
    episode.hidden = !isWanted(episode, wanted);
    count += !episode.hidden;
  }
  for (const task of tasks) task.hidden = !task.querySelector("article:not([hidden])");
  document.body.classList.toggle("side-by-side", wanted.layout === "side-by-side");
  shown.textContent = count + " of " + episodes.length + " shown";
}
form.addEventListener("input", update);
form.addEventListener("reset", () => setTimeout(update));
form.addEventListener("submit", event => event.preventDefault());
update();
