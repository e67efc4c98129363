// The change stream of this tab: it reports what may have changed, and whether it is connected.
//
//   connecting ──open──▶ live ──lost──▶ reconnecting ──open──▶ live
//
// A hidden page has no stream: browsers allow six connections to a plain HTTP server
// in all tabs, so background tabs would block the visible one.
//
// It resumes after the last change, so an interrupted connection loses nothing. If that is
// impossible (no change yet, or the server sends "reset"), everything is read again.

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
/** A connection that is silent for this time counts as dead; the server sends comments more often. */
const SILENCE = 60_000;

/** How long a first read waits for the stream: some proxies buffer its start. */
const LATE = 1000;

let markOpened = () => {};
let opening = new Promise<void>(() => {});

/** Resolves when the stream is open, has failed or is late. A read after it opened misses no change. */
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

/** The page is hidden: nothing was lost, and the stream is opened again later. */
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

/** An invalid record may mean anything, so it counts as a change of everything. */
function read(data: string): Change | undefined {
  try {
    return JSON.parse(data) as Change;
  } catch {
    return undefined;
  }
}

/** Waits longer after each failure, with jitter so that many tabs do not reconnect together; ends early when the network or the user is back. */
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
