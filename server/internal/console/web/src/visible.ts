// Whether anybody can see the page.

/** Resolves once the page can be seen: a tab in the background reads nothing. */
export function visible(): Promise<void> {
  if (!document.hidden) return Promise.resolve();
  return new Promise((resolve) => document.addEventListener("visibilitychange", () => resolve(), { once: true }));
}

/** A signal that is aborted when the page, seen now, is no longer. */
export function hidden(): AbortSignal {
  const unseen = new AbortController();
  document.addEventListener("visibilitychange", () => unseen.abort(), { once: true });
  return unseen.signal;
}
