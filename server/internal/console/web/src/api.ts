// Calls to the public REST API, which every client can make.

import { address } from "./router";
import { refusal, session, signOut, type Session } from "./session";
import { noteServerTime } from "./time";
import type { Deployment, FleetEvent, LoginConfig, Page, Target, WhoAmI } from "./types";

/** The path of the current tenant. */
function base(): string {
  return `/api/v1/tenants/${encodeURIComponent(address.value.tenant)}`;
}

/** A failed call, with a message for people. status 0: the server was not reached. */
export class Failure extends Error {
  constructor(readonly status: number, message: string) {
    super(message);
  }
}

export const TOKEN_REFUSED =
  "The server refused this token: it is wrong, or it was revoked. Paste a valid one.";

const SESSION_ENDED = "Your session has ended. Sign in again.";

interface CallOptions {
  method?: "GET" | "POST";
  signal?: AbortSignal;
  accept?: string;
  /** The caller, if not the current user. */
  as?: Session;
}

/** Sends a request and returns the response, whose body is not read yet. Throws Failure, or AbortError. */
export async function call(path: string, options: CallOptions = {}) {
  const caller = options.as ?? session.value;
  const headers: Record<string, string> = { Accept: options.accept ?? "application/json" };
  if (caller?.kind === "token") headers.Authorization = `Bearer ${caller.token}`;
  let response: Response;
  try {
    response = await fetch(path, {
      method: options.method ?? "GET",
      headers,
      signal: options.signal,
      cache: "no-store",
      // If there is a token, the server must not use the cookie.
      credentials: caller?.kind === "token" ? "omit" : "same-origin",
    });
  } catch (cause) {
    if (options.signal?.aborted) throw cause;
    throw new Failure(0, "The server cannot be reached. Check that kedge-server runs and that this machine is online.");
  }
  noteServerTime(response.headers.get("Date"));
  if (response.ok) return response;
  // End only the session in use: a response to an older one must not end a newer one.
  if (response.status === 401 && caller === session.value) signOut(caller?.kind === "cookie" ? SESSION_ENDED : TOKEN_REFUSED);
  throw new Failure(response.status, await problem(response));
}

async function get<T>(path: string, signal?: AbortSignal): Promise<T> {
  return (await (await call(path, { signal })).json()) as T;
}

/** Returns the message of a problem+json response, or of its status. */
async function problem(response: Response): Promise<string> {
  try {
    const body = await response.json();
    const said = body.detail || body.title;
    if (said) return String(said);
  } catch {
    // Not JSON: a proxy responded, and only the status is known.
  }
  if (response.status === 401) return TOKEN_REFUSED;
  if (response.status === 403) return "You may not read that. It requires the viewer role in this tenant.";
  return `The server answered ${response.status} ${response.statusText}`.trim() + ".";
}

/** Returns the caller; as is a caller who is not signed in yet. */
export async function whoAmI(as?: Session): Promise<WhoAmI> {
  return (await (await call("/api/v1/whoami", { as })).json()) as WhoAmI;
}

/** How people can sign in, and whether this browser has a session cookie. */
export function loginConfig(): Promise<LoginConfig> {
  return get<LoginConfig>("/api/v1/auth/config");
}

/** Ends a session at the server; a token is only forgotten here. */
export async function logOut(): Promise<void> {
  const cookie = session.value?.kind === "cookie";
  signOut();
  if (!cookie) return;
  try {
    await call("/api/v1/auth/logout", { method: "POST" });
  } catch {
    refusal.value = "The server could not be told that you have signed out: your session may still be open. Load this page again and repeat it.";
  }
}

/** Maximum number of tenants in the switcher. Others can be reached by their address. */
const MOST_TENANTS = 500;

/** The tenants that the user may read, and whether there are more. */
export async function tenantsOf(me: WhoAmI): Promise<{ names: string[]; more: boolean }> {
  if (me.role !== "fleet-admin") return { names: (me.tenants ?? []).map((m) => m.tenant), more: false };
  const page = await get<Page<{ name: string }>>(`/api/v1/tenants?limit=${MOST_TENANTS}`);
  return { names: (page.items ?? []).map((t) => t.name), more: Boolean(page.next) };
}

export function listPath(resource: "agents" | "deployments", after: string, limit: number): string {
  const query = new URLSearchParams({ limit: String(limit) });
  if (after) query.set("after", after);
  return `${base()}/${resource}?${query}`;
}

export function getPage<T>(resource: "agents" | "deployments", after: string, limit: number, signal?: AbortSignal) {
  return get<Page<T>>(listPath(resource, after, limit), signal);
}

export function getDeployment(name: string, signal?: AbortSignal): Promise<Deployment> {
  return get<Deployment>(`${base()}/deployments/${encodeURIComponent(name)}`, signal);
}

/** A deployment with its first targets and, where those are not all, those that have failed. */
export async function getDeploymentInFull(name: string, signal?: AbortSignal): Promise<Deployment> {
  const found = await getDeployment(name, signal);
  if (!found.moreTargets) return found;
  const path = `${base()}/deployments/${encodeURIComponent(name)}/targets`;
  const pages = await Promise.all(["sync=Failed", "health=Failed"].map((query) => get<Page<Target>>(`${path}?${query}`, signal)));
  const targets = new Map((found.targets ?? []).map((target) => [target.id, target]));
  for (const page of pages) for (const target of page.items ?? []) targets.set(target.id, target);
  return { ...found, targets: [...targets.values()] };
}

export async function getEvents(query: { deployment?: string; limit: number }, signal?: AbortSignal): Promise<FleetEvent[]> {
  const search = new URLSearchParams({ limit: String(query.limit) });
  if (query.deployment) search.set("deployment", query.deployment);
  const items = (await get<Page<FleetEvent>>(`${base()}/events?${search}`, signal)).items ?? [];
  return items.sort((a, b) => b.seq - a.seq);
}

export function streamPath(after: string): string {
  return `${base()}/stream${after ? `?after=${encodeURIComponent(after)}` : ""}`;
}
