// Meaning, appearance, and order of the states of the API.

import { parse } from "./time";
import type { Agent, Deployment, Health, ObjectStatus, Sync, Target } from "./types";

export type Tone = "ok" | "busy" | "warn" | "bad" | "idle" | "stale";

interface Word {
  tone: Tone;
  rank: number;
  meaning: string;
}

export const HEALTH: Record<Health, Word> = {
  Failed: { tone: "bad", rank: 6, meaning: "at least one object has failed" },
  Stale: { tone: "stale", rank: 5, meaning: "the agent is not connected: the current state is unknown" },
  Unknown: { tone: "idle", rank: 4, meaning: "nothing was reported yet" },
  NotFound: { tone: "warn", rank: 3, meaning: "an object that should exist does not" },
  Terminating: { tone: "busy", rank: 2, meaning: "objects are being deleted" },
  InProgress: { tone: "busy", rank: 1, meaning: "objects exist and are not ready yet" },
  Current: { tone: "ok", rank: 0, meaning: "every object is as desired and ready" },
};

export const SYNC: Record<Sync, Word> = {
  Failed: { tone: "bad", rank: 5, meaning: "at least one object could not be applied" },
  Rewound: { tone: "warn", rank: 4, meaning: "the agent is ahead of the server: nothing is sent until Git is read again" },
  OutOfSync: { tone: "warn", rank: 3, meaning: "it differs from Git and is not changed: it is held, or the policy says so" },
  Held: { tone: "warn", rank: 3, meaning: "no longer in Git, and kept until its deletion is confirmed" },
  Pending: { tone: "idle", rank: 3, meaning: "nothing to apply yet, or not applied yet" },
  Syncing: { tone: "busy", rank: 2, meaning: "being applied" },
  Detached: { tone: "idle", rank: 1, meaning: "no longer managed: its objects stay" },
  Deleted: { tone: "idle", rank: 1, meaning: "the deletion was carried out" },
  Synced: { tone: "ok", rank: 0, meaning: "the cluster matches Git" },
};

const UNKNOWN_STATE: Word = { tone: "idle", rank: 4, meaning: "a state that this console does not know" };

export function healthWord(health: Health): Word {
  return HEALTH[health] ?? UNKNOWN_STATE;
}

export function syncWord(sync: Sync): Word {
  return SYNC[sync] ?? UNKNOWN_STATE;
}

/** How bad a state is, to sort by: failures first, then unknown states, then changes in progress. */
export function badness(state: { sync: Sync; health: Health; sourceError?: string }): number {
  const failed = state.sourceError || state.health === "Failed" || state.sync === "Failed" ? 100 : 0;
  return failed + healthWord(state.health).rank * 10 + syncWord(state.sync).rank;
}

export function worstFirst<T extends { sync: Sync; health: Health; sourceError?: string }>(items: T[], name: (item: T) => string): T[] {
  return [...items].sort((a, b) => badness(b) - badness(a) || name(a).localeCompare(name(b)));
}

export function needsAttention(deployment: Deployment): boolean {
  if (deployment.sourceError) return true;
  const tones = [healthWord(deployment.health).tone, syncWord(deployment.sync).tone];
  return tones.some((tone) => tone === "bad" || tone === "stale" || tone === "warn");
}

export function isStale(target: Target): boolean {
  return target.health === "Stale" || parse(target.staleSince) !== undefined;
}

/** The current health of an object. For a stale target it is unknown. */
export function objectHealth(target: Target, object: ObjectStatus): Health {
  return isStale(target) ? "Stale" : object.health;
}

export function agentState(agent: Agent): "connected" | "stale" | "never" {
  if (agent.connected) return "connected";
  return parse(agent.lastSeenAt) === undefined ? "never" : "stale";
}

export function shortCommit(commit: string | undefined): string {
  return commit ? commit.slice(0, 8) : "";
}

/** The number of ready targets, of all targets. */
export function targetsDone(deployment: Deployment): string {
  const { ready, targets, detached } = deployment.counts;
  return `${ready}/${targets - detached}`;
}
