// Calls to the public REST API: the same calls that anybody else can make.

import { noteServerTime } from "./time";
import { signOut, token } from "./session";
import type { Deployment, FleetEvent, Page, Target, WhoAmI } from "./types";

const TENANT = "default";
const BASE = `/api/v1/tenants/${TENANT}`;

/** A call that failed, in words that a person can act on. status 0: the server was not reached. */
export class Failure extends Error {
  constructor(readonly status: number, message: string) {
    super(message);
  }
}

export const TOKEN_REFUSED =
  "The server refused this token: it is wrong, or it was revoked. Paste a valid one.";

/** Makes a call and returns its answer, whose body is not read yet. Throws Failure, or AbortError. */
export async function call(path: string, options: { signal?: AbortSignal; accept?: string; token?: string } = {}) {
  const bearer = options.token ?? token.value;
  let response: Response;
  try {
    response = await fetch(path, {
      headers: { Authorization: `Bearer ${bearer}`, Accept: options.accept ?? "application/json" },
      signal: options.signal,
      cache: "no-store",
      credentials: "omit",
    });
  } catch (cause) {
    if (options.signal?.aborted) throw cause;
    throw new Failure(0, "The server cannot be reached. Check that kedge-server runs and that this machine is online.");
  }
  noteServerTime(response.headers.get("Date"));
  if (response.ok) return response;
  // Only the token in use is given up: an answer to an older one must not end a newer session.
  if (response.status === 401 && bearer === token.value) signOut(TOKEN_REFUSED);
  throw new Failure(response.status, await problem(response));
}

async function get<T>(path: string, signal?: AbortSignal): Promise<T> {
  return (await (await call(path, { signal })).json()) as T;
}

/** Says what a problem+json answer says, or what its status means. */
async function problem(response: Response): Promise<string> {
  try {
    const body = await response.json();
    const said = body.detail || body.title;
    if (said) return String(said);
  } catch {
    // Not JSON: a proxy answered, and the status below is all there is to tell.
  }
  if (response.status === 401) return TOKEN_REFUSED;
  if (response.status === 403) return "This token may not read that. Ask a fleet admin for a token that may.";
  return `The server answered ${response.status} ${response.statusText}`.trim() + ".";
}

export async function whoAmI(candidate: string): Promise<WhoAmI> {
  return (await (await call("/api/v1/whoami", { token: candidate })).json()) as WhoAmI;
}

export function listPath(resource: "agents" | "deployments", after: string, limit: number): string {
  const query = new URLSearchParams({ limit: String(limit) });
  if (after) query.set("after", after);
  return `${BASE}/${resource}?${query}`;
}

export function getPage<T>(resource: "agents" | "deployments", after: string, limit: number, signal?: AbortSignal) {
  return get<Page<T>>(listPath(resource, after, limit), signal);
}

export function getDeployment(name: string, signal?: AbortSignal): Promise<Deployment> {
  return get<Deployment>(`${BASE}/deployments/${encodeURIComponent(name)}`, signal);
}

/** A deployment with its first targets and, where those are not all, those that have failed. */
export async function getDeploymentInFull(name: string, signal?: AbortSignal): Promise<Deployment> {
  const found = await getDeployment(name, signal);
  if (!found.moreTargets) return found;
  const path = `${BASE}/deployments/${encodeURIComponent(name)}/targets`;
  const pages = await Promise.all(["sync=Failed", "health=Failed"].map((query) => get<Page<Target>>(`${path}?${query}`, signal)));
  const targets = new Map((found.targets ?? []).map((target) => [target.id, target]));
  for (const page of pages) for (const target of page.items ?? []) targets.set(target.id, target);
  return { ...found, targets: [...targets.values()] };
}

export async function getEvents(query: { deployment?: string; limit: number }, signal?: AbortSignal): Promise<FleetEvent[]> {
  const search = new URLSearchParams({ limit: String(query.limit) });
  if (query.deployment) search.set("deployment", query.deployment);
  const items = (await get<Page<FleetEvent>>(`${BASE}/events?${search}`, signal)).items ?? [];
  return items.sort((a, b) => b.seq - a.seq);
}

export function streamPath(after: string): string {
  return `${BASE}/stream${after ? `?after=${encodeURIComponent(after)}` : ""}`;
}
