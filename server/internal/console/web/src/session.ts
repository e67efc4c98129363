// The current session. An API token is kept only in the sessionStorage of this tab: it is deleted with
// the tab, and never stays in the address bar. A person who signed in at the identity provider has a
// session cookie that scripts cannot read; the browser sends it, and the server refuses it on
// requests that other sites make.

import { signal } from "@preact/signals";

const KEY = "kedge-token";

export type Session = { kind: "none" } | { kind: "token"; token: string } | { kind: "cookie" };

const NONE: Session = { kind: "none" };

/** undefined until the server has reported whether there is a session cookie. */
export const session = signal<Session | undefined>(undefined);
/** Why the last session ended or was refused; shown on the sign-in page. */
export const refusal = signal("");

/** Reads the token from the address bar, or otherwise the stored one of this tab. */
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

/** Records whether the browser has a session cookie, unless a token was entered since. */
export function foundCookie(found: boolean): void {
  if (session.value === undefined) session.value = found ? { kind: "cookie" } : NONE;
}

/** Deletes the token or the session in this tab. logOut ends the session on the server. */
export function signOut(why = ""): void {
  sessionStorage.removeItem(KEY);
  refusal.value = why;
  session.value = NONE;
}

/** Reads #token=… and removes it immediately: replaceState leaves no history entry with it. */
function takeFragment(): string {
  const fragment = new URLSearchParams(location.hash.slice(1));
  const found = fragment.get("token");
  if (found === null) return "";
  history.replaceState(null, "", location.pathname + location.search);
  return found.trim();
}
