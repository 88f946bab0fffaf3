// Buttons that copy a text, and the service's own address in texts that name the usual one.
"use strict";

function addAddress(code) {
  const own = new URL(code.dataset.address, document.baseURI).href;
  code.textContent = code.textContent.replace(code.dataset.usual, () => own);
}

function addButton(pre) {
  const button = document.createElement("button");
  button.type = "button";
  button.className = "copy-button";
  button.textContent = "Copy";
  button.setAttribute("aria-label", `Copy ${pre.getAttribute("aria-label")}`);
  button.addEventListener("click", async () => {
    try {
      await navigator.clipboard.writeText(pre.textContent);
      button.textContent = "Copied";
    } catch {
      getSelection().selectAllChildren(pre); // without https there is no clipboard; the text is selected
      button.textContent = "Selected";
    }
    setTimeout(() => { button.textContent = "Copy"; }, 2000);
  });
  pre.parentElement.querySelector("h3").append(button);
}

document.querySelectorAll("code[data-address]").forEach(addAddress);
document.querySelectorAll(".copy pre").forEach(addButton);
