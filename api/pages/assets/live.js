// Says whether a page is live: streaming, reconnecting, or at its end. htmx replaces the parts.
"use strict";
{
  const line = document.getElementById("live");
  const say = (text, state) => {
    line.textContent = text;
    line.className = state;
  };
  if (line) {
    document.addEventListener("htmx:sse:after:connection", () => say("Live", "on"));
    document.addEventListener("htmx:sse:before:connection", (event) => {
      if (event.detail.connection.attempt > 0) say("Connection lost, trying again", "lost");
    });
    document.addEventListener("htmx:sse:close", (event) => {
      if (event.detail.reason === "message") location.reload();
      else say("Not live", "");
    });
  }
}
