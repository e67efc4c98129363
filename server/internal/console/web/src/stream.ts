// The one change stream of this tab: it tells what may have changed, and whether we are told.
//
//   connecting ──open──▶ live ──lost──▶ reconnecting ──open──▶ live
//
// A page that nobody sees holds no stream: browsers allow six connections to a plain HTTP server
// over all tabs, so tabs in the background would starve the one in front.
//
// It resumes after the last change seen, so a gap in the connection is no gap in the news; where
// that is impossible (nothing seen yet, or the server says "reset") everything shown is read anew.

import { signal } from "@preact/signals";
import { call, Failure, streamPath } from "./api";
import { messages, type Message } from "./sse";
import { now } from "./time";
import { hidden, visible } from "./visible";
import type { Change } from "./types";

export type News = { type: "change"; change: Change } | { type: "all" } | { type: "open" };
type Listener = (news: News) => void;

export const link = signal<{ state: "connecting" | "live" | "reconnecting"; lostAt?: number }>({ state: "connecting" });

const listeners = new Set<Listener>();

/** Calls listener for all news until the returned function is called. */
export function listen(listener: Listener): () => void {
  listeners.add(listener);
  return () => void listeners.delete(listener);
}

function tell(news: News): void {
  for (const listener of [...listeners]) listener(news);
}

const FIRST_DELAY = 500;
const MAX_DELAY = 20_000;
/** A connection that carries nothing at all for so long is taken for dead; the server sends a comment well within it. */
const SILENCE = 60_000;

/** How long a first read waits for the stream: some proxies hold back its beginning. */
const LATE = 1000;

let markOpened = () => {};
let opening = new Promise<void>(() => {});

/** Resolves when the stream is open, has failed or is late. What is read after it opened has no gap before the first change. */
export function opened(): Promise<void> {
  return opening;
}

/** Keeps the stream open until the returned function is called. */
export function openStream(): () => void {
  const stop = new AbortController();
  opening = new Promise((resolve) => {
    markOpened = resolve;
  });
  setTimeout(markOpened, LATE);
  void keepOpen(stop.signal);
  return () => stop.abort();
}

async function keepOpen(stop: AbortSignal): Promise<void> {
  let last = "";
  let failures = 0;
  let unseen = hidden();
  link.value = { state: "connecting" };
  while (!stop.aborted) {
    await visible();
    if (unseen.aborted) unseen = hidden();
    try {
      await readOnce(last, AbortSignal.any([stop, unseen]), (message) => {
        failures = 0;
        last = take(message, last);
      });
    } catch (error) {
      if (error instanceof Failure && error.status === 401) return;
    }
    if (stop.aborted) return;
    markOpened();
    if (unseen.aborted) pause();
    else await lose(failures++, stop);
  }
}

/** Hidden on purpose: nothing was lost, and nothing is promised until the stream is open again. */
function pause(): void {
  if (link.value.state === "live") link.value = { state: "connecting" };
}

async function lose(failures: number, stop: AbortSignal): Promise<void> {
  if (link.value.state === "live") link.value = { state: "reconnecting", lostAt: now.value };
  else if (link.value.state === "connecting") link.value = { state: "reconnecting" };
  await backoff(failures, stop);
}

/** Opens the stream once and reads it to its end. */
async function readOnce(after: string, stop: AbortSignal, onMessage: (m: Message) => void): Promise<void> {
  const attempt = new AbortController();
  const abort = () => attempt.abort();
  stop.addEventListener("abort", abort);
  let watchdog = setTimeout(abort, SILENCE);
  const heard = () => {
    clearTimeout(watchdog);
    watchdog = setTimeout(abort, SILENCE);
  };
  try {
    const response = await call(streamPath(after), { signal: attempt.signal, accept: "text/event-stream" });
    if (!response.body) throw new Failure(0, "The change stream has no body.");
    link.value = { state: "live" };
    tell({ type: after ? "open" : "all" });
    markOpened();
    for await (const message of messages(response.body, heard)) onMessage(message);
  } finally {
    clearTimeout(watchdog);
    stop.removeEventListener("abort", abort);
    attempt.abort();
  }
}

/** Handles one message and returns the sequence number to resume after. */
function take(message: Message, last: string): string {
  if (message.event === "reset") {
    tell({ type: "all" });
    return message.id;
  }
  if (message.event !== "change") return message.id || last;
  const change = read(message.data);
  tell(change ? { type: "change", change } : { type: "all" });
  return message.id || String(change?.seq ?? last);
}

/** A record that cannot be read may mean anything, so it counts as news about everything. */
function read(data: string): Change | undefined {
  try {
    return JSON.parse(data) as Change;
  } catch {
    return undefined;
  }
}

/** Waits longer after each failure, with jitter so that a fleet of tabs does not return at once; ends early when the network or the person is back. */
function backoff(failures: number, stop: AbortSignal): Promise<void> {
  const most = Math.min(MAX_DELAY, FIRST_DELAY * 2 ** Math.min(failures, 10));
  return new Promise((resolve) => {
    const done = () => {
      clearTimeout(timer);
      window.removeEventListener("online", done);
      document.removeEventListener("visibilitychange", done);
      stop.removeEventListener("abort", done);
      resolve();
    };
    const timer = setTimeout(done, most * (0.5 + Math.random() / 2));
    window.addEventListener("online", done);
    document.addEventListener("visibilitychange", done);
    stop.addEventListener("abort", done);
  });
}
