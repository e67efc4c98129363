// Times for people: an age that keeps counting, and the exact time on hover.

import { signal } from "@preact/signals";

/** The server's clock in milliseconds; ticks once a second so that ages count on by themselves. */
export const now = signal(Date.now());

let skew = 0;

/** Measures the difference to the server's clock, so that an age is never negative or wrong by hours. */
export function noteServerTime(date: string | null): void {
  const at = date ? Date.parse(date) : NaN;
  if (Number.isNaN(at)) return;
  const measured = at - Date.now();
  // The header has whole seconds: less than two seconds is no skew.
  skew = Math.abs(measured) < 2000 ? 0 : measured;
}

export function startClock(): void {
  setInterval(() => {
    if (!document.hidden) now.value = Date.now() + skew;
  }, 1000);
  document.addEventListener("visibilitychange", () => {
    now.value = Date.now() + skew;
  });
}

/** Milliseconds of an API time, or undefined for a missing one (Go's zero time is in the year 1). */
export function parse(at: string | undefined): number | undefined {
  const ms = at ? Date.parse(at) : NaN;
  return Number.isNaN(ms) || ms < 0 ? undefined : ms;
}

export function age(ms: number): string {
  const s = Math.max(0, Math.floor(ms / 1000));
  if (s < 60) return `${s} s`;
  if (s < 3600) return `${Math.floor(s / 60)} min`;
  if (s < 86400) return `${Math.floor(s / 3600)} h ${Math.floor((s % 3600) / 60)} min`;
  return `${Math.floor(s / 86400)} d ${Math.floor((s % 86400) / 3600)} h`;
}

/** A clock time, with its date unless that is today. */
export function clock(ms: number): string {
  const at = new Date(ms);
  const time = at.toLocaleTimeString(undefined, { hour: "2-digit", minute: "2-digit", second: "2-digit", hour12: false });
  if (at.toDateString() === new Date(now.value).toDateString()) return time;
  return `${at.toLocaleDateString(undefined, { month: "short", day: "numeric" })} ${time}`;
}

function exact(ms: number): string {
  return new Date(ms).toLocaleString(undefined, { dateStyle: "long", timeStyle: "long" });
}

/** "3 min ago"; the missing word when there is no such time. */
export function Ago({ at, missing = "never" }: { at: string | undefined; missing?: string }) {
  const ms = parse(at);
  if (ms === undefined) return <span class="muted">{missing}</span>;
  return (
    <time dateTime={new Date(ms).toISOString()} title={exact(ms)}>
      {age(now.value - ms)} ago
    </time>
  );
}

/** "14:02:11 (3 min)": a time and its age. */
export function Since({ at }: { at: string | undefined }) {
  const ms = parse(at);
  if (ms === undefined) return null;
  return (
    <time dateTime={new Date(ms).toISOString()} title={exact(ms)}>
      {clock(ms)} ({age(now.value - ms)})
    </time>
  );
}

/** A moment as a clock time, its age on hover. */
export function At({ at }: { at: string | undefined }) {
  const ms = parse(at);
  if (ms === undefined) return <span class="muted">–</span>;
  return (
    <time dateTime={new Date(ms).toISOString()} title={exact(ms)}>
      {clock(ms)}
    </time>
  );
}
