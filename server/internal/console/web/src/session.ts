// Who is signed in, and how. An API token lives in this tab's sessionStorage only: it is gone with
// the tab, and never stays in the address bar. A person who signed in at the identity provider has a
// session cookie that scripts cannot read; the browser sends it, and the server refuses it on
// requests that other sites make.

import { signal } from "@preact/signals";

const KEY = "kedge-token";

export type Session = { kind: "none" } | { kind: "token"; token: string } | { kind: "cookie" };

const NONE: Session = { kind: "none" };

/** undefined while the server is asked whether the browser has a session cookie. */
export const session = signal<Session | undefined>(undefined);
/** Why the last sign-in ended or was not taken; shown on the sign-in page. */
export const refusal = signal("");

/** Takes a token out of the address bar, or else the one that this tab has kept. */
export function restore(): void {
  const token = takeFragment() || sessionStorage.getItem(KEY) || "";
  if (token) signIn(token);
  window.addEventListener("hashchange", () => {
    const fresh = takeFragment();
    if (fresh) signIn(fresh);
  });
}

export function signIn(token: string): void {
  sessionStorage.setItem(KEY, token);
  refusal.value = "";
  session.value = { kind: "token", token };
}

/** Notes whether the browser has a session cookie, unless a token was given meanwhile. */
export function foundCookie(found: boolean): void {
  if (session.value === undefined) session.value = found ? { kind: "cookie" } : NONE;
}

/** Forgets the token, or that there was a session. Ending the session itself is a call: see logOut. */
export function signOut(why = ""): void {
  sessionStorage.removeItem(KEY);
  refusal.value = why;
  session.value = NONE;
}

/** Reads #token=… and removes it at once: replaceState leaves no history entry that holds it. */
function takeFragment(): string {
  const fragment = new URLSearchParams(location.hash.slice(1));
  const found = fragment.get("token");
  if (found === null) return "";
  history.replaceState(null, "", location.pathname + location.search);
  return found.trim();
}
