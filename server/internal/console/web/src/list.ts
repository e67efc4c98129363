// Paged lists that stay current. The server pages by key. Loaded rows stay loaded, and a
// change of one known row reads only that row.

import { Failure, getDeployment, getPage } from "./api";
import { Live } from "./live";
import type { News } from "./stream";
import type { Agent, Change, Deployment } from "./types";

export interface Loaded<T> {
  items: T[];
  /** Where the next page starts; empty when all is loaded. */
  next: string;
}

interface Row {
  id: string;
  name: string;
}

export const PAGE = 100;
const LARGEST_PAGE = 500;
/** Above this number of rows, pages are read, which needs fewer calls. */
const SINGLE_READS = 8;

export class LiveList<T extends Row> extends Live<Loaded<T>> {
  private due = { all: true, more: false, ids: new Set<string>() };

  constructor(
    private readonly resource: "agents" | "deployments",
    /** Number of rows to load first and with each more(). */
    private readonly step: number,
    private readonly concerns: (change: Change) => "all" | "none" | string,
    private readonly readRow?: (name: string, signal: AbortSignal) => Promise<T>,
  ) {
    super();
  }

  more(): void {
    this.due.more = true;
    this.refresh();
  }

  protected note(news: News): boolean {
    if (news.type === "open") return false;
    const what = news.type === "all" ? "all" : this.concerns(news.change);
    if (what === "none") return false;
    // A row that is not loaded may be a new one in the loaded range.
    const known = this.readRow && this.value.value?.items.some((row) => row.id === what);
    if (known) this.due.ids.add(what);
    else this.due.all = true;
    return true;
  }

  protected async read(signal: AbortSignal): Promise<Loaded<T>> {
    const due = this.due;
    this.due = { all: false, more: false, ids: new Set() };
    try {
      const have = this.value.value;
      if (!have || due.all || due.ids.size > SINGLE_READS) {
        return await this.pages("", (have?.items.length ?? 0) + (due.more || !have ? this.step : 0), signal);
      }
      const current = await this.rows(have, [...due.ids], signal);
      if (!due.more || !current.next) return current;
      const page = await this.pages(current.next, this.step, signal);
      return { items: [...current.items, ...page.items], next: page.next };
    } catch (error) {
      this.due.all = true; // everything is still due
      throw error;
    }
  }

  /** Reads at least count rows after after, or all. */
  private async pages(after: string, count: number, signal: AbortSignal): Promise<Loaded<T>> {
    const items: T[] = [];
    let next = after;
    do {
      const limit = Math.min(LARGEST_PAGE, Math.max(PAGE, count - items.length));
      const page = await getPage<T>(this.resource, next, limit, signal);
      items.push(...(page.items ?? []));
      next = page.next ?? "";
    } while (next && items.length < count);
    return { items, next };
  }

  /** Reads single rows again; a deleted one leaves the list. */
  private async rows(have: Loaded<T>, ids: string[], signal: AbortSignal): Promise<Loaded<T>> {
    const fresh = new Map<string, T | undefined>();
    await Promise.all(
      have.items
        .filter((row) => ids.includes(row.id))
        .map(async (row) => fresh.set(row.id, await this.rowOrGone(row.name, signal))),
    );
    if (fresh.size === 0) return have;
    const items = have.items.map((row) => (fresh.has(row.id) ? fresh.get(row.id) : row));
    return { items: items.filter((row) => row !== undefined), next: have.next };
  }

  private async rowOrGone(name: string, signal: AbortSignal): Promise<T | undefined> {
    try {
      return await this.readRow?.(name, signal);
    } catch (error) {
      if (error instanceof Failure && error.status === 404) return undefined;
      throw error;
    }
  }
}

export function liveDeployments(step: number): LiveList<Deployment> {
  return new LiveList<Deployment>("deployments", step, deploymentOf, async (name, signal) => {
    // Lists have no targets; keeping those of changed rows would only cost memory.
    const { targets: _, ...rest } = await getDeployment(name, signal);
    return rest;
  });
}

export function liveAgents(step: number): LiveList<Agent> {
  return new LiveList<Agent>("agents", step, (change) => (AGENT_KINDS.has(change.kind) ? "all" : "none"));
}

/** Deployments and environments decide how many targets an agent has. */
const AGENT_KINDS = new Set<Change["kind"]>(["agent", "connection", "deployment", "environment"]);

/** The deployment of a change. A connected or disconnected agent affects many. */
function deploymentOf(change: Change): "all" | "none" | string {
  if (change.kind === "event" || change.kind === "token") return "none";
  if (change.kind === "deployment") return change.deploymentId || change.id || "all";
  if (change.kind === "status" || change.kind === "desired") return change.deploymentId || "all";
  return "all";
}
