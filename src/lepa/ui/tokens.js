// Signing in: a token's secret is kept for this tab, and gone when it is closed.

import { ApiError, keepToken, token } from "./api.js";
import { ago, badge, button, facts, h, headline, nothing } from "./dom.js";
import { notice } from "./talk.js";

function changed() {
  dispatchEvent(new Event("lepa:token"));
  dispatchEvent(new Event("lepa:reload"));
}

function form() {
  const field = h("input", {
    type: "password",
    id: "secret",
    autocomplete: "off",
    spellcheck: "false",
    placeholder: "xxxxxxxx-xxxx-xxxx-xxxx-xxxxxxxxxxxx",
    required: true,
  });
  const take = (event) => {
    event.preventDefault();
    keepToken(document.getElementById("secret").value.trim());
    changed();
  };
  return h(
    "form",
    { class: "sign-in", onsubmit: take },
    h("label", { for: "secret" }, "Secret of your token"),
    field,
    h("button", { class: "button main" }, "Sign in"),
  );
}

/** What is shown instead of a page that the API refuses. */
export function signIn(message, title) {
  const words = token()
    ? "Your token does not let you see this. Sign in with another one, or ask who made it for the right policy."
    : "This cluster asks who you are. Sign in with the secret of a token.";
  return h(
    "div",
    {},
    headline(title),
    h("p", { class: "lead" }, words),
    h("p", { class: "dim" }, `The agent says: ${message}`),
    form(),
    h("p", { class: "dim" }, "Or type ", h("code", {}, "lepa ui -authenticate"), " where you have one."),
  );
}

export const tokensPage = {
  title: () => "Sign in",
  async load(api) {
    if (!token()) return { self: null };
    try {
      return { self: await api.get("acl/token/self") };
    } catch (error) {
      if (error instanceof ApiError && error.status) return { self: null, refused: error.message };
      throw error;
    }
  },
  view({ self, refused }) {
    const out = () => {
      keepToken("");
      notice("Signed out.");
      changed();
    };
    if (!token())
      return h(
        "div",
        {},
        headline("Sign in"),
        h("p", { class: "lead" }, "The secret stays in this tab, and is forgotten when it is closed."),
        form(),
      );
    const said = refused
      ? nothing(`The agent does not know this token: ${refused}`)
      : facts(
          ["Name", self.Name || "–"],
          ["Accessor", h("code", {}, self.AccessorID)],
          ["Type", badge(self.Type)],
          ["Policies", (self.Policies ?? []).join(", ") || "–"],
          ["Roles", (self.Roles ?? []).map((role) => role.Name).join(", ") || "–"],
          ["Made", ago(self.CreateTime)],
          ["Ends", self.ExpirationTime ? new Date(self.ExpirationTime).toLocaleString() : "never"],
        );
    return h("div", {}, headline("Signed in", h("span", { class: "grow" }), button("Sign out", out)), said);
  },
};
