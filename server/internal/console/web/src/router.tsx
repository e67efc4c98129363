// Pages by address: real paths and real links, so that they can be shared, opened in a tab and
// gone back to.

import { signal } from "@preact/signals";
import type { ComponentChildren } from "preact";

export const address = signal(read());

function read(): { path: string; query: URLSearchParams } {
  return { path: location.pathname, query: new URLSearchParams(location.search) };
}

let moved = false;

/** Whether the person has gone anywhere since the page was loaded. */
export function hasMoved(): boolean {
  return moved;
}

export function startRouter(): void {
  window.addEventListener("popstate", () => {
    moved = true;
    address.value = read();
  });
}

export function go(to: string): void {
  moved = true;
  history.pushState(null, "", to);
  address.value = read();
  window.scrollTo(0, 0);
}

/** Writes filters into the address without a history entry for every key that is typed. */
export function setQuery(changes: Record<string, string>): void {
  const query = new URLSearchParams(location.search);
  for (const [key, value] of Object.entries(changes)) {
    if (value) query.set(key, value);
    else query.delete(key);
  }
  const search = query.toString();
  history.replaceState(null, "", location.pathname + (search ? `?${search}` : ""));
  address.value = read();
}

/** A link that stays in the page, unless the person asks for a new tab or window. */
export function Link(props: { to: string; class?: string; current?: boolean; title?: string; children: ComponentChildren }) {
  const follow = (event: MouseEvent) => {
    if (event.defaultPrevented || event.button !== 0 || event.metaKey || event.ctrlKey || event.shiftKey || event.altKey) return;
    event.preventDefault();
    go(props.to);
  };
  return (
    <a href={props.to} class={props.class} title={props.title} aria-current={props.current ? "page" : undefined} onClick={follow}>
      {props.children}
    </a>
  );
}

export function deploymentPath(name: string): string {
  return `/deployments/${encodeURIComponent(name)}`;
}
