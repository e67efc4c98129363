// Who is signed in. The token lives in this tab's sessionStorage only: it is gone with the tab,
// is never in a cookie that the browser would send by itself, and never stays in the address bar.

import { signal } from "@preact/signals";

const KEY = "kedge-token";

export const token = signal("");
/** Why the last token was not taken; shown on the sign-in page. */
export const refusal = signal("");

/** Takes a token out of the address bar, or else the one that this tab has kept. */
export function restore(): void {
  token.value = takeFragment() || sessionStorage.getItem(KEY) || "";
  if (token.value) sessionStorage.setItem(KEY, token.value);
  window.addEventListener("hashchange", () => {
    const fresh = takeFragment();
    if (fresh) signIn(fresh);
  });
}

export function signIn(fresh: string): void {
  sessionStorage.setItem(KEY, fresh);
  refusal.value = "";
  token.value = fresh;
}

export function signOut(why = ""): void {
  sessionStorage.removeItem(KEY);
  refusal.value = why;
  token.value = "";
}

/** Reads #token=… and removes it at once: replaceState leaves no history entry that holds it. */
function takeFragment(): string {
  const fragment = new URLSearchParams(location.hash.slice(1));
  const found = fragment.get("token");
  if (found === null) return "";
  history.replaceState(null, "", location.pathname + location.search);
  return found.trim();
}
