// Asks for this page again every other second, and puts in place the sections that have changed.
"use strict";

const EVERY_MS = 2000;
let seen = document.body.dataset.tag;

function tell(text) {
  const state = document.getElementById("live");
  if (state.textContent !== text) state.textContent = text;
}

// What a reader has opened, ticked or focused stays so.
function keepState(before, after) {
  const open = new Set([...before.querySelectorAll("details[open] > summary")].map((s) => s.textContent));
  for (const summary of after.querySelectorAll("details > summary")) {
    if (open.has(summary.textContent)) summary.parentElement.open = true;
  }
  for (const box of before.querySelectorAll("input:checked")) {
    const same = [...after.querySelectorAll("input")].find((other) => other.value === box.value);
    if (same) same.checked = true;
  }
}

function replaceWith(before, after) {
  const focused = before.contains(document.activeElement) ? document.activeElement : null;
  keepState(before, after);
  before.replaceWith(after);
  if (!focused) return;
  const same = [...after.querySelectorAll(focused.tagName)].find(
    (other) => other.value === focused.value && other.textContent === focused.textContent);
  if (same) same.focus({ preventScroll: true });
}

const names = (root) => [...root.querySelectorAll("main > section")].map((section) => section.id);

function update(fresh) {
  if (names(fresh).join() !== names(document).join()) {
    replaceWith(document.querySelector("nav"), fresh.querySelector("nav"));
    replaceWith(document.querySelector("main"), fresh.querySelector("main"));
    return;
  }
  for (const after of fresh.querySelectorAll("main > section")) {
    const before = document.getElementById(after.id);
    if (before.innerHTML !== after.innerHTML) replaceWith(before, after);
  }
}

async function refresh() {
  try {
    const answer = await fetch(location.href, { cache: "no-cache" });
    if (!answer.ok) throw new Error(answer.statusText);
    const tag = answer.headers.get("ETag").replaceAll('"', "");
    if (tag !== seen) {
      update(new DOMParser().parseFromString(await answer.text(), "text/html"));
      seen = tag;
    }
    tell("Up to date");
  } catch (error) {
    tell("No answer from the server; trying again");
  }
  setTimeout(refresh, EVERY_MS);
}

setTimeout(refresh, EVERY_MS);
