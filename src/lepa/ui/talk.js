// What is said to a person beside the page, and what is asked before something is changed.

import { button, h } from "./dom.js";

const NOTICE_MS = 6000;
const NOTICES_MAX = 4;

/** A sentence that goes away by itself. tone: "good" or "bad". */
export function notice(words, tone = "good") {
  const list = document.getElementById("notices");
  const shown = h("p", { class: "notice", "data-tone": tone }, words);
  list.append(shown);
  while (list.children.length > NOTICES_MAX) list.firstElementChild.remove();
  setTimeout(() => shown.remove(), NOTICE_MS);
}

/** Whether the person says yes. doing: what the button says; field: a control of which `value` is the answer. */
export function confirmed(question, explained, doing, { danger = false, field = null } = {}) {
  return new Promise((resolve) => {
    const close = (answer) => {
      dialog.close();
      resolve(answer);
    };
    const dialog = h(
      "dialog",
      { "aria-labelledby": "question" },
      h("h2", { id: "question" }, question),
      h("p", {}, explained),
      field,
      h(
        "div",
        { class: "actions" },
        button("Cancel", () => close(null), "quiet"),
        button(doing, () => close(field?.value ?? true), danger ? "danger" : "main"),
      ),
    );
    dialog.addEventListener("close", () => {
      resolve(null);
      dialog.remove();
    });
    document.body.append(dialog);
    dialog.showModal();
  });
}
