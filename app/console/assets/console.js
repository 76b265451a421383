// What the console needs beside htmx: live pages, the field of a cron, selections and the keyboard. Pages can be read without it.
(() => {
  "use strict";

  // A refusal: the fields that it names are marked, and it gets the focus.
  function markFields() {
    document.querySelectorAll("[aria-invalid]").forEach((field) => field.removeAttribute("aria-invalid"));
    const notice = document.querySelector("#notice.bad");
    if (!notice) return;
    const named = [notice, ...notice.querySelectorAll("[data-field]")].map((one) => one.dataset.field).filter(Boolean);
    for (const name of named) {
      const field = document.querySelector(`main [name="${CSS.escape(name)}"]`);
      if (field) field.setAttribute("aria-invalid", "true");
    }
    notice.focus();
    notice.scrollIntoView({ block: "nearest" });
  }

  // The sentence about an act is shown once: the address of the page, which may be reloaded or sent in a message, has no trace of it.
  function forgetDone() {
    const address = new URL(location.href);
    if (!address.searchParams.has("done")) return;
    address.searchParams.delete("done");
    history.replaceState(history.state, "", address);
  }

  // Times are also shown in the zone of the browser, when they are pointed at.
  function nameLocalTimes() {
    document.querySelectorAll("time[datetime]:not([title])").forEach((time) => {
      const at = new Date(time.dateTime);
      if (time.hasAttribute("data-local")) time.textContent = at.toLocaleString(undefined, { weekday: "short", year: "numeric", month: "2-digit", day: "2-digit", hour: "2-digit", minute: "2-digit", timeZoneName: "short" });
      if (!Number.isNaN(at.valueOf())) time.title = at.toLocaleString(undefined, { dateStyle: "full", timeStyle: "long" });
    });
  }

  // Pages that say data-live are read again after each event. A hidden tab reads nothing. Without a stream they are read every five seconds.
  let stream = null, timer = null, lastRead = 0, poll = null;
  const live = () => document.querySelector("[data-live]");
  const isBusy = () => {
    const part = live();
    return !part || part.contains(document.activeElement?.closest("input, select, textarea")) || part.querySelector("input:checked[name=id]");
  };
  function readAgain() {
    timer = null;
    if (document.hidden) return;
    if (isBusy()) return isStale ? readLater() : undefined;
    lastRead = Date.now();
    window.htmx.ajax("GET", location.pathname + location.search, { target: "#live", select: "#live", swap: "outerMorph" });
  }
  function readSoon() {
    if (timer || !live()) return;
    timer = setTimeout(readAgain, Math.max(300, 2000 - (Date.now() - lastRead)));
  }
  function readLater() {
    timer ??= setTimeout(readAgain, 5000);
  }
  function closeStream() {
    stream?.close();
    stream = null;
    clearInterval(poll);
    poll = null;
  }
  function follow() {
    if (!live() || document.hidden) return closeStream();
    if (stream || poll) return;
    stream = new EventSource("/live");
    // What changed between the page and the begin of its stream is on no stream.
    for (const kind of ["ready", "edit", "sync", "decision", "run_end", "reset"]) stream.addEventListener(kind, readSoon);
    stream.onmessage = readSoon;
    stream.onerror = () => {
      if (stream?.readyState !== EventSource.CLOSED) return;
      closeStream();
      poll = setInterval(readSoon, 5000);
    };
  }

  // An answer that the console has not made, for example that of a proxy, and no answer at all, must not take the place of what is shown
  // or typed. A refusal by the console says itself where it belongs (hx-retarget).
  let isStale = false, knownAt = new Date();
  function say(place, kind, words) {
    const part = document.querySelector(place);
    if (!part) return;
    const line = document.createElement("p");
    line.textContent = words;
    part.replaceChildren(line);
    part.className = `notice ${kind}`;
  }
  function reasonOf(context) {
    const status = context.response?.status;
    if (status) return `answered ${status}${status < 400 ? " with something else" : ""}`;
    return context.request?.signal?.reason === "timeout" ? "did not answer in time" : "cannot be reached";
  }
  function keepPage(context) {
    const reason = reasonOf(context), target = context.target;
    if (target?.id === "live") {
      isStale = true;
      const time = knownAt.toLocaleString(undefined, { dateStyle: "medium", timeStyle: "long" });
      say("#stale", "warn", `! This page is as of ${time}: cronbox ${reason}. It is read again every few seconds.`);
      readLater();
    } else if (target?.id === "page" || target === document.body) {
      const before = target.id === "page" ? "The request was accepted, but the next page did not come" : "The page did not come";
      say("#notice", "warn", `! ${before}: cronbox ${reason}. Load the page again.`);
    } else {
      const again = context.sourceElement?.dataset.again ?? "nothing is created twice";
      say("#notice", "bad", `✕ cronbox ${reason}, so it is not known whether this was done. What you typed is still here. If you press again, ${again}.`);
      const notice = document.querySelector("#notice");
      notice?.setAttribute("role", "alert");
      notice?.setAttribute("tabindex", "-1");
      notice?.removeAttribute("data-field");
      // A field that explains itself while it is typed keeps the focus.
      if (context.sourceElement?.matches("form")) markFields();
    }
  }
  document.addEventListener("htmx:before:swap", (event) => {
    const { ctx, tasks } = event.detail;
    const isComplete = !ctx.select || tasks.some((task) => task.type === "main" && task.fragment.childElementCount > 0);
    // The console has a page for each refusal. A page of the history has no other place.
    const mayFail = ctx.target === document.body || (ctx.target?.id === "page" && ctx.response.status < 500);
    if (ctx.hx?.retarget || (isComplete && (ctx.response.status < 400 || mayFail))) return;
    event.preventDefault();
    keepPage(ctx);
  });
  document.addEventListener("htmx:error", ({ detail }) => detail.ctx && keepPage(detail.ctx));
  function showFresh(target) {
    if (!["live", "page"].includes(target?.id) && target !== document.body) return;
    isStale = false;
    knownAt = new Date();
    document.querySelector("#stale")?.replaceChildren();
    document.querySelector("#stale")?.removeAttribute("class");
  }

  // Selected rows: how many, and whether all that match are meant.
  function count() {
    const form = document.querySelector("[data-selection]");
    if (!form) return;
    const all = document.querySelectorAll("input[name=id]");
    const chosen = [...all].filter((box) => box.checked);
    const words = form.querySelector("[data-count]");
    if (words) words.textContent = chosen.length ? `${chosen.length} selected` : "Nothing selected";
    form.querySelectorAll("button[data-needs-selection]").forEach((button) => (button.disabled = !chosen.length && !form.querySelector("[name=all]:checked")));
  }
  document.addEventListener("change", (event) => {
    if (event.target.matches("[data-select-all]")) {
      document.querySelectorAll("input[name=id]").forEach((box) => (box.checked = event.target.checked));
    }
    count();
  });

  // A question names the team that the form has: {team_id} stands for it.
  document.addEventListener("htmx:confirm", ({ detail, target }) => {
    const field = target.elements?.team_id;
    if (!field) return;
    const typed = field.value === "all" ? "all teams" : `team ${field.value}`;
    const team = field.selectedOptions?.[0]?.textContent ?? typed;
    detail.ctx.confirm = detail.ctx.confirm.replace("{team_id}", () => team);
  });

  // A span of the ledger: the two days that were chosen last, in either order.
  document.addEventListener("click", (event) => {
    const day = event.target.closest("[data-day]");
    const form = document.querySelector("[data-span]");
    if (!day || !form || !event.shiftKey) return;
    event.preventDefault();
    const chosen = day.dataset.day;
    const [first, last] = [chosen, form.dataset.chosen ?? chosen].sort();
    form.dataset.chosen = chosen;
    form.querySelector("[name=start]").value = `${first}T00:00`;
    form.querySelector("[name=end]").value = `${last}T23:59`;
  });

  document.addEventListener("click", (event) => {
    const button = event.target.closest("[data-copy]");
    if (!button) return;
    navigator.clipboard.writeText(document.querySelector(button.dataset.copy).textContent).then(() => (button.textContent = "Copied"));
  });

  // "/" leads to the search, "g" and a letter to a page; Escape leaves a field.
  const pages = { o: "/", w: "/workflows", r: "/runs", b: "/backfills", u: "/upcoming", d: "/delivery", p: "/proof", a: "/admin" };
  let isGoing = false;
  document.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const isTyping = event.target.closest("input, select, textarea");
    if (event.key === "Escape" && isTyping) return event.target.blur();
    if (isTyping) return;
    if (event.key === "/") {
      event.preventDefault();
      document.querySelector("#find")?.focus();
    } else if (isGoing && pages[event.key]) {
      location.href = pages[event.key];
    }
    isGoing = event.key === "g";
  });

  function ready() {
    forgetDone();
    // On a phone the menu is one line, which may begin before the present page.
    document.querySelector(".menu [aria-current]")?.scrollIntoView({ block: "nearest", inline: "center" });
    nameLocalTimes();
    markFields();
    follow();
    count();
  }
  document.addEventListener("DOMContentLoaded", ready);
  document.addEventListener("htmx:after:swap", ({ detail }) => {
    showFresh(detail.ctx.target);
    ready();
  });
  document.addEventListener("visibilitychange", () => {
    if (document.hidden) closeStream();
    else {
      follow();
      readSoon();
    }
  });
})();
