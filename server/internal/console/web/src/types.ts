// The JSON of the public REST API, as far as the console uses it. Times are RFC 3339; a missing
// one is absent, empty or Go's zero time (see time.tsx). Lists may be null when they are empty.

export type Sync = "Pending" | "Syncing" | "Synced" | "OutOfSync" | "Failed" | "Deleted" | "Detached" | "Rewound" | "Held";
export type Health = "Current" | "InProgress" | "Failed" | "Terminating" | "NotFound" | "Unknown" | "Stale";

export interface Page<T> {
  items: T[] | null;
  next?: string;
}

export interface WhoAmI {
  name?: string;
  role?: string;
  /** Whether it is a person who signed in, not a token. */
  session?: boolean;
  /** Empty for a fleet admin, who may read all of them. */
  tenants?: { tenant: string; role: string }[] | null;
}

export interface LoginConfig {
  /** Whether people can sign in at an identity provider. */
  oidc: boolean;
  issuer?: string;
  /** Whether this browser sent a session cookie. */
  session?: boolean;
}

export interface Connection {
  replica: string;
  version?: string;
  kubeVersion?: string;
  clusterUID?: string;
  connectedAt?: string;
  lastSeenAt?: string;
  connected: boolean;
  remoteAddr?: string;
}

/** Why something is in its state: an identifier from docs/reasons.md, and a sentence. */
export interface Cause {
  reason: string;
  message: string;
}

export interface Agent {
  id: string;
  name: string;
  labels?: Record<string, string> | null;
  scope: string;
  namespaces?: string[] | null;
  reason?: string;
  connected: boolean;
  lastSeenAt?: string;
  createdAt?: string;
  targets: number;
  warnings?: Cause[] | null;
  connections?: Connection[] | null;
}

export interface ObjectStatus {
  group?: string;
  version?: string;
  kind: string;
  namespace?: string;
  name: string;
  sync: Sync;
  health: Health;
  reason?: string;
  message?: string;
}

export interface Target {
  id: string;
  agent: string;
  sync: Sync;
  health: Health;
  reason?: string;
  message?: string;
  asOf?: string;
  staleSince?: string;
  generation: number;
  observedGeneration: number;
  commit?: string;
  objects?: ObjectStatus[] | null;
}

/** Number of targets of a deployment in each state. */
export interface TargetCounts {
  targets: number;
  ready: number;
  detached: number;
  stale: number;
  staleSince?: string;
  sync: Record<string, number>;
  health: Record<string, number>;
}

export interface Deployment {
  id: string;
  name: string;
  source: { repoURL: string; path: string; revision?: string; globs?: string[] | null };
  environment: string;
  namespace?: string;
  policy: { prune: boolean; adopt: boolean; allowEmpty: boolean };
  commit?: string;
  digest?: string;
  renderedAt?: string;
  sourceError?: string;
  deletedAt?: string;
  createdAt?: string;
  sync: Sync;
  health: Health;
  reason?: string;
  message?: string;
  counts: TargetCounts;
  /** The first ones, only for a single deployment. */
  targets?: Target[] | null;
  /** Start of the next page, if there are more. */
  moreTargets?: string;
}

export interface FleetEvent {
  seq: number;
  at: string;
  type: "Normal" | "Warning";
  reason: string;
  agent?: string;
  deployment?: string;
  object?: string;
  message?: string;
}

/** One record of the change stream: what may have changed. */
export interface Change {
  seq: number;
  kind: "agent" | "connection" | "token" | "environment" | "repository" | "deployment" | "desired" | "status" | "event";
  id: string;
  agentId?: string;
  deploymentId?: string;
  at?: string;
}
