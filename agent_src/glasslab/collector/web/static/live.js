// Renews the page's regions while a session runs. Rows are kept by their key, so focus, scroll position and what is
// unfolded stay where they are. Without this script the page reloads itself.
"use strict";

const main = document.getElementById("main");
const status = () => document.getElementById("live");
const MOST_TRIES = 900;
let tries = 0;

function renewRows(old, fresh) {
  const known = new Map([...old.children].map((row) => [row.dataset.key, row]));
  const wanted = [...fresh.children];
  const keys = new Set(wanted.map((row) => row.dataset.key));
  for (const [key, row] of known) if (!keys.has(key) && !row.contains(document.activeElement)) row.remove();
  let place = null;
  for (const row of wanted) {
    let mine = known.get(row.dataset.key);
    if (!mine) {
      mine = document.importNode(row, true);
      old.insertBefore(mine, place ? place.nextSibling : old.firstChild);
    } else if (!old.hasAttribute("data-append") && mine.innerHTML !== row.innerHTML && !mine.contains(document.activeElement)) {
      mine.replaceChildren(...document.importNode(row, true).childNodes);
    }
    place = mine;
  }
}

function renew(fresh) {
  for (const old of document.querySelectorAll("[data-region]")) {
    const region = fresh.querySelector(`[data-region="${old.dataset.region}"]`);
    if (!region) continue;
    const [rows, freshRows] = [old, region].map((one) => (one.matches("ol") ? one : one.querySelector("tbody:has([data-key])")));
    if (rows && freshRows) renewRows(rows, freshRows);
    else if (old.innerHTML !== region.innerHTML && !old.contains(document.activeElement)) {
      old.replaceChildren(...document.importNode(region, true).childNodes);
    }
  }
}

function say(text) {
  const place = status();
  if (place && place.textContent !== text) place.textContent = text;
}

async function look() {
  if (document.hidden) return again(1);
  try {
    const answer = await fetch(location.href, { credentials: "same-origin", redirect: "error" });
    if (answer.status === 401) return say("Signed out: reload the page.");
    if (!answer.ok) throw new Error(String(answer.status));
    const fresh = new DOMParser().parseFromString(await answer.text(), "text/html");
    renew(fresh);
    if (!fresh.getElementById("main").hasAttribute("data-live")) return say("");
    say("Live");
    again(1);
  } catch {
    say("The log does not answer; trying again.");
    again(5);
  }
}

function again(times) {
  tries += 1;
  if (tries > MOST_TRIES) return say("No longer renewed: reload the page.");
  setTimeout(look, 1000 * Number(main.dataset.live) * times);
}

say("Live");
again(1);
