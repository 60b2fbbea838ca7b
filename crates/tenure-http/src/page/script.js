
"use strict";
(() => {
  const base = location.pathname.endsWith("/") ? location.pathname : location.pathname + "/";
  const elections = new Map();
  const main = document.getElementById("elections");
  const link = document.getElementById("link");
  const news = document.getElementById("news");
  let token = "";
  let lastId = "";

  // Everything that others wrote goes in as text, never as markup.
  const put = (card, part, text) => {
    const node = card.querySelector(part);
    if (node.textContent !== text) node.textContent = text;
  };
  const headers = (more) => Object.assign({}, more, token ? { authorization: "Bearer " + token } : {});
  const call = (path, options) => fetch(base + path, Object.assign({ cache: "no-store" }, options));
  const pathOf = (name) => "elections/" + encodeURIComponent(name);

  const short = (ms) => {
    if (ms < 1000) return Math.round(ms) + " ms";
    const s = ms / 1000;
    if (s < 60) return (s < 10 ? s.toFixed(1) : Math.round(s)) + " s";
    if (s < 3600) return Math.floor(s / 60) + " min " + Math.round(s % 60) + " s";
    if (s < 86400) return Math.floor(s / 3600) + " h " + Math.floor(s % 3600 / 60) + " min";
    return Math.floor(s / 86400) + " d " + Math.floor(s % 86400 / 3600) + " h";
  };
  // The same everywhere: 24 hours, and the date only if it is another day's.
  const two = (number) => String(number).padStart(2, "0");
  const clock = (text) => {
    const at = new Date(text);
    const day = at.getFullYear() + "-" + two(at.getMonth() + 1) + "-" + two(at.getDate());
    const time = two(at.getHours()) + ":" + two(at.getMinutes()) + ":" + two(at.getSeconds());
    return at.toDateString() === new Date().toDateString() ? time : day + " " + time;
  };
  // Neighbouring terms differ as much as hues can.
  const color = (term) => "hsl(" + Math.round((term || 0) * 137.508 % 360) + " 55% 50%)";

  const reasons = {
    resigned: "resigned", asked: "asked to resign", not_renewed: "not renewed in time",
    renewal_failed: "a renewal failed", deposed: "the store took it away",
  };

  const setLink = (state, text) => {
    link.dataset.link = state;
    if (link.textContent !== text) link.textContent = text;
  };

  const cardOf = (name) => {
    let entry = elections.get(name);
    if (entry) return entry;
    const card = document.getElementById("card").content.firstElementChild.cloneNode(true);
    card.dataset.election = name;
    put(card, ".name", name);
    card.querySelector(".resign").addEventListener("click", () => askToResign(name));
    card.querySelector("svg").setAttribute("aria-label", "Timeline of " + name);
    card.querySelector(".bar").setAttribute("aria-label", "Trust left in " + name);
    main.append(card);
    entry = { card, state: null, got: 0, history: [] };
    elections.set(name, entry);
    document.getElementById("empty").hidden = true;
    return entry;
  };

  const show = (state) => {
    const entry = cardOf(state.election);
    const { card } = entry;
    const before = entry.state;
    const changed = !before || before.leader !== state.leader || before.term !== state.term;
    entry.state = state;
    entry.got = performance.now();
    card.classList.toggle("leads", state.is_leader);
    card.classList.toggle("nobody", !state.leader);
    card.classList.toggle("lost", state.store_answers === false || state.overdue_ms !== null);
    put(card, ".badge", state.is_leader ? "leads here" : state.leader ? "leads elsewhere" : "nobody leads");
    put(card, ".label", state.label || "Nobody");
    put(card, ".term", state.term === null ? "" : "term " + state.term);
    const trouble = state.store_answers === false
      ? "The store does not answer. " + (state.is_leader ? "Leadership ends when trust does." : "What is shown may be old.")
      : state.overdue_ms !== null ? "This process ought to have stepped down." : "";
    put(card, ".store", trouble);
    const metadata = state.metadata ? " Published: " + JSON.stringify(state.metadata) : "";
    put(card, ".facts", "This instance: " + state.candidate.split("#")[0] + "." + metadata);
    card.querySelector(".resign").disabled = !state.leader;
    if (changed) {
      card.dataset.changedAt = String(Date.now());
      if (before) news.textContent = state.election + ": " + (state.label ? state.label + " leads" : "nobody leads");
    }
    count(entry);
  };

  const count = (entry) => {
    const { card, state } = entry;
    if (!state) return;
    const left = state.remaining_ms === null ? 0 : Math.max(0, state.remaining_ms - (performance.now() - entry.got));
    const part = Math.min(100, 100 * left / state.ttl_ms);
    card.querySelector(".fill").style.width = part + "%";
    const bar = card.querySelector(".bar");
    bar.setAttribute("aria-valuenow", String(Math.round(part)));
    bar.setAttribute("aria-valuetext", state.leader ? short(left) + " left" : "nobody leads");
    // The lease of another is as old as the last look at the store, so that a short rest means nothing.
    card.classList.toggle("low", state.is_leader && part < 33);
    put(card, ".left", state.leader ? (left / 1000).toFixed(1) + " s of " + (state.is_leader ? "trust" : "lease") : "");
    put(card, ".since", state.since ? "since " + clock(state.since) + ", for " + short(Math.max(0, Date.now() - Date.parse(state.since))) : "");
  };

  const rect = (svg, from, to, fill, title, kind) => {
    const node = document.createElementNS(svg.namespaceURI, "rect");
    // A gap is a thin line through nothing; one too short for that is a tick across.
    const thin = kind === "gap" && to - from > 12;
    node.setAttribute("x", from.toFixed(2));
    node.setAttribute("width", Math.max(3, to - from).toFixed(2));
    node.setAttribute("y", thin ? "12" : "0");
    node.setAttribute("height", thin ? "4" : "28");
    if (fill) node.setAttribute("fill", fill);
    node.setAttribute("class", kind);
    const tip = document.createElementNS(svg.namespaceURI, "title");
    tip.textContent = title;
    node.append(tip);
    svg.append(node);
  };

  const showHistory = (entry, history) => {
    entry.history = history;
    draw(entry);
    const body = entry.card.querySelector("tbody");
    body.replaceChildren(...history.map((reign) => {
      const row = document.createElement("tr");
      const cells = [
        reign.label, reign.term === null ? "" : String(reign.term), clock(reign.from),
        reign.to ? clock(reign.to) : "goes on", reign.reason ? reasons[reign.reason] || reign.reason : "",
        reign.gap_ms === null ? "" : short(reign.gap_ms),
      ].map((text) => {
        const cell = document.createElement("td");
        cell.textContent = text;
        return cell;
      });
      const swatch = document.createElement("span");
      swatch.className = "swatch";
      swatch.style.background = color(reign.term);
      cells[1].prepend(swatch);
      row.append(...cells);
      return row;
    }));
  };

  const draw = (entry) => {
    const svg = entry.card.querySelector("svg");
    const history = entry.history;
    svg.replaceChildren();
    const now = Date.now();
    if (!history.length) {
      put(entry.card, ".from", "no change of hands was seen yet");
      put(entry.card, ".to", "");
      return;
    }
    const first = Date.parse(history[history.length - 1].from);
    const span = Math.max(1000, now - first);
    const x = (time) => 1000 * (time - first) / span;
    for (const reign of [...history].reverse()) {
      const from = Date.parse(reign.from);
      const to = reign.to ? Date.parse(reign.to) : now;
      const term = reign.term === null ? "" : ", term " + reign.term;
      rect(svg, x(from), x(to), color(reign.term), reign.label + term + ", " + short(to - from), "reign");
    }
    for (const reign of history) {
      if (!reign.gap_ms) continue;
      const from = Date.parse(reign.from);
      rect(svg, x(from - reign.gap_ms), x(from), "", "nobody led for " + short(reign.gap_ms), "gap");
    }
    const last = history[0];
    if (last.to) rect(svg, x(Date.parse(last.to)), 1000, "", "nobody leads", "gap");
    put(entry.card, ".from", clock(history[history.length - 1].from));
    put(entry.card, ".to", "now");
    const gaps = history.filter((reign) => reign.gap_ms).length;
    svg.setAttribute("aria-label", "Timeline of " + entry.state.election + ": " + history.length + " reigns, " + gaps + " gaps; the table below has them all");
  };

  const loadHistory = async (name) => {
    try {
      const answer = await call(pathOf(name), { headers: headers() });
      if (!answer.ok) return;
      const whole = await answer.json();
      showHistory(cardOf(name), whole.history);
    } catch {
      // The stream notices that the service is away, and says so.
    }
  };

  const empty = document.getElementById("empty");
  const showEmpty = () => { empty.hidden = elections.size > 0; };

  const drop = (name) => {
    const entry = elections.get(name);
    if (entry) { entry.card.remove(); elections.delete(name); }
  };

  const take = (event, data) => {
    if (event === "snapshot") {
      empty.textContent = data.waiting
        ? "The store does not answer yet, so nothing is known of any election. It is asked again and again."
        : "There is no election here yet.";
      const names = new Set(data.elections.map((state) => state.election));
      for (const name of [...elections.keys()]) if (!names.has(name)) drop(name);
      for (const state of data.elections) { show(state); loadHistory(state.election); }
      showEmpty();
      return;
    }
    if (event === "forgotten") {
      drop(data.election);
      showEmpty();
      return;
    }
    show(data.state);
    showEmpty();
    if (["watched", "elected", "draining", "stepped_down", "leader_changed"].includes(event)) loadHistory(data.election);
  };

  // By hand and not by EventSource, which can't send the token.
  const listen = async () => {
    const more = lastId ? { "last-event-id": lastId } : {};
    const answer = await call("events", { headers: headers(more) });
    if (answer.status === 401) {
      setLink("away", "this service wants its token");
      await askForToken();
      return;
    }
    if (!answer.ok) throw new Error("status " + answer.status);
    setLink("live", "live");
    const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
    let buffer = "";
    for (;;) {
      const { value, done } = await reader.read();
      if (done) return;
      buffer += value;
      let end;
      while ((end = buffer.indexOf("\n\n")) >= 0) {
        const frame = buffer.slice(0, end);
        buffer = buffer.slice(end + 2);
        let event = "message", data = "";
        for (const line of frame.split("\n")) {
          if (line.startsWith("id: ")) lastId = line.slice(4);
          else if (line.startsWith("event: ")) event = line.slice(7);
          else if (line.startsWith("data: ")) data += line.slice(6);
        }
        if (data) take(event, JSON.parse(data));
      }
    }
  };

  const forever = async () => {
    for (let wait = 250; ; wait = Math.min(5000, wait * 2)) {
      try {
        const began = performance.now();
        await listen();
        if (performance.now() - began > 5000) wait = 250;
      } catch {
        // Said below; tried again.
      }
      if (link.dataset.link !== "away") setLink("away", "the service is away; what is shown is old");
      await new Promise((resolve) => setTimeout(resolve, wait));
    }
  };

  // One dialog for both questions. Resolves with false if it was cancelled.
  const dialog = document.getElementById("ask");
  const ask = (title, why, button, act) => new Promise((resolve) => {
    const form = document.getElementById("ask-form");
    const input = document.getElementById("ask-token");
    const problem = document.getElementById("ask-problem");
    const ok = document.getElementById("ask-ok");
    document.getElementById("ask-title").textContent = title;
    document.getElementById("ask-why").textContent = why;
    ok.textContent = button;
    problem.textContent = "";
    input.value = token;
    const submit = async (event) => {
      event.preventDefault();
      ok.disabled = true;
      const said = await act(input.value);
      ok.disabled = false;
      if (said) { problem.textContent = said; input.focus(); return; }
      end(true);
    };
    const cancel = (event) => { event.preventDefault(); end(false); };
    const cancelButton = document.getElementById("ask-cancel");
    const end = (done) => {
      form.removeEventListener("submit", submit);
      dialog.removeEventListener("cancel", cancel);
      cancelButton.removeEventListener("click", cancel);
      dialog.close();
      resolve(done);
    };
    form.addEventListener("submit", submit);
    dialog.addEventListener("cancel", cancel);
    cancelButton.addEventListener("click", cancel);
    dialog.showModal();
    input.focus();
  });

  const askForToken = () => ask("Token", "This service tells nothing without its token.", "Connect", async (given) => {
    const answer = await call("elections", { headers: { authorization: "Bearer " + given } });
    if (!answer.ok) return (await answer.json()).detail;
    token = given;
    return "";
  });

  const askToResign = (name) => {
    const { state } = cardOf(name);
    const who = state.label + (state.term === null ? "" : ", term " + state.term);
    return ask("Ask to resign?", who + " leads " + name + ". Its work is told to stop, then somebody else leads.", "Ask to resign", async (given) => {
      try {
        const body = state.term === null ? {} : { term: state.term };
        const answer = await call(pathOf(name) + "/resign", {
          method: "POST", body: JSON.stringify(body),
          headers: Object.assign({ "content-type": "application/json" }, given ? { authorization: "Bearer " + given } : {}),
        });
        if (!answer.ok) return (await answer.json()).detail;
        token = given;
        return "";
      } catch {
        return "The service does not answer.";
      }
    });
  };

  setInterval(() => { for (const entry of elections.values()) count(entry); }, 250);
  setInterval(() => { for (const entry of elections.values()) draw(entry); }, 5000);
  forever();
})();
