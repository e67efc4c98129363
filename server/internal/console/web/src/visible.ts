// Whether the page is visible.

/** Resolves when the page is visible: a background tab reads nothing. */
export function visible(): Promise<void> {
  if (!document.hidden) return Promise.resolve();
  return new Promise((resolve) => document.addEventListener("visibilitychange", () => resolve(), { once: true }));
}

/** A signal that is aborted when the page is hidden. */
export function hidden(): AbortSignal {
  const unseen = new AbortController();
  document.addEventListener("visibilitychange", () => unseen.abort(), { once: true });
  return unseen.signal;
}
