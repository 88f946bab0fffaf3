// Opens the stream of a live page, and says whether it is live. htmx replaces the parts.
// Not by an attribute: htmx may read the page before its extension for streams is loaded.
"use strict";
{
  const line = document.getElementById("live");
  const say = (text, state) => {
    line.textContent = text;
    line.className = state;
  };
  document.addEventListener("htmx:sse:after:connection", () => say("Live", "on"));
  document.addEventListener("htmx:sse:before:connection", (event) => {
    if (event.detail.connection.attempt > 0) say("Connection lost, trying again", "lost");
  });
  document.addEventListener("htmx:sse:close", (event) => {
    if (event.detail.reason === "message") location.reload();
    else say("Not live", "");
  });
  if (line) {
    setTimeout(() => htmx.ajax("GET", line.dataset.stream, { source: line, timeout: 60000 }));
  }
}
