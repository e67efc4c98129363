// Pages by address: real paths and real links, so that they can be shared, opened in a tab, and
// bookmarked. Everything belongs to a tenant, which is at the start of the path:
// /tenants/NAME/deployments. Links are written without it and stay in the current tenant.

import { signal } from "@preact/signals";
import type { ComponentChildren } from "preact";

export const address = signal(read());

export interface Address {
  /** The current tenant; empty when the address names none. */
  tenant: string;
  /** What follows the tenant, such as /deployments. */
  path: string;
  query: URLSearchParams;
}

function read(): Address {
  const query = new URLSearchParams(location.search);
  const [, first, tenant, ...rest] = location.pathname.split("/");
  if (first !== "tenants" || !tenant) return { tenant: "", path: location.pathname, query };
  return { tenant: decode(tenant), path: `/${rest.join("/")}`, query };
}

/** Decodes a part of a path. Invalid percent-encoding stays unchanged, because no resource has such a name. */
export function decode(part: string): string {
  try {
    return decodeURIComponent(part);
  } catch {
    return part;
  }
}

/** The address of a page of a tenant. */
function within(tenant: string, to: string): string {
  if (!tenant) return to;
  return `/tenants/${encodeURIComponent(tenant)}${to === "/" ? "" : to}`;
}

/** Opens a page of another tenant. */
export function goToTenant(tenant: string, to: string): void {
  push(within(tenant, to));
}

/** Adds a tenant to an address without one, and replaces the history entry. */
export function settle(tenant: string): void {
  history.replaceState(null, "", within(tenant, location.pathname) + location.search);
  address.value = read();
}

let moved = false;

/** Whether the user has navigated since the page was loaded. */
export function hasMoved(): boolean {
  return moved;
}

export function startRouter(): void {
  window.addEventListener("popstate", () => {
    moved = true;
    address.value = read();
  });
}

function push(to: string): void {
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

/** A link that stays in the page, unless the user opens a new tab or window. */
export function Link(props: { to: string; tenant?: string; class?: string; current?: boolean; title?: string; children: ComponentChildren }) {
  const to = within(props.tenant ?? address.value.tenant, props.to);
  const follow = (event: MouseEvent) => {
    if (event.defaultPrevented || event.button !== 0 || event.metaKey || event.ctrlKey || event.shiftKey || event.altKey) return;
    event.preventDefault();
    push(to);
  };
  return (
    <a href={to} class={props.class} title={props.title} aria-current={props.current ? "page" : undefined} onClick={follow}>
      {props.children}
    </a>
  );
}

export function deploymentPath(name: string): string {
  return `/deployments/${encodeURIComponent(name)}`;
}
