// Components that every page uses.

import { useSignal } from "@preact/signals";
import type { ComponentChildren } from "preact";
import type { Live } from "./live";
import { Since } from "./time";
import type { Deployment, Health, Sync, Target } from "./types";
import { healthWord, isStale, syncWord, type Tone } from "./words";

/** Shapes in addition to colors, so that a state is visible without color. */
const SHAPES: Record<Tone, ComponentChildren> = {
  ok: <path d="M3 8.5l3.2 3.2L13 5" />,
  busy: <path d="M8 2.5a5.5 5.5 0 1 1-5.2 3.7" />,
  warn: <path d="M8 2.5l6 10.5H2zM8 6.5v3M8 11.4v.1" />,
  bad: <path d="M4 4l8 8M12 4l-8 8" />,
  idle: <path d="M4 8h8" />,
  stale: <path d="M8 2.5a5.5 5.5 0 1 0 .1 0M8 5v3.2l2 1.3" />,
};

export function Badge({ tone, title, children }: { tone: Tone; title?: string; children: ComponentChildren }) {
  return (
    <span class={`badge ${tone}`} title={title}>
      <svg viewBox="0 0 16 16" aria-hidden="true">{SHAPES[tone]}</svg>
      {children}
    </span>
  );
}

export function HealthBadge({ health }: { health: Health }) {
  const word = healthWord(health);
  return <Badge tone={word.tone} title={word.meaning}>{health || "Unknown"}</Badge>;
}

/** A sync state; with health Stale it is only the last known one. */
export function SyncBadge({ sync, health }: { sync: Sync; health?: Health }) {
  const word = syncWord(sync);
  if (health === "Stale" && word.tone === "ok") {
    return <Badge tone="idle" title="last known state: an agent is not connected">was {sync}</Badge>;
  }
  return <Badge tone={word.tone} title={word.meaning}>{sync || "Pending"}</Badge>;
}

/** The sync state of a target; if its agent is not connected, the last known one. */
export function TargetSync({ target, sync }: { target: Target; sync: Sync }) {
  if (!isStale(target)) return <SyncBadge sync={sync} />;
  return <Badge tone="idle" title="last known state: the agent is not connected">was {sync || "Pending"}</Badge>;
}

/** The reason of a state, unless the state is Synced. */
export function Reason({ of }: { of: { reason?: string } }) {
  if (!of.reason || of.reason === "Synced") return null;
  return <code class="reason">{of.reason}</code>;
}

/** The most important message of a deployment. */
export function Why({ deployment }: { deployment: Deployment }) {
  if (!deployment.sourceError) return <><Reason of={deployment} />{deployment.message}</>;
  return <><Badge tone="bad" title="The newest revision could not be used; the running revision is not affected">Source error</Badge> {deployment.sourceError}</>;
}

/** The health of a target. If its agent is not connected, it is "Stale since …". */
export function TargetHealth({ target }: { target: Target }) {
  if (!isStale(target)) return <HealthBadge health={target.health} />;
  return (
    <Badge tone="stale" title={healthWord("Stale").meaning}>
      Stale since <Since at={target.staleSince || target.asOf} />
    </Badge>
  );
}

/** A command to copy. The button is shown only if the browser allows access to the clipboard. */
export function Command({ text }: { text: string }) {
  const copied = useSignal(false);
  const copy = async () => {
    await navigator.clipboard.writeText(text);
    copied.value = true;
  };
  return (
    <div class="command">
      <code>{text}</code>
      {navigator.clipboard && (
        <button type="button" class="quiet" onClick={() => void copy()}>{copied.value ? "Copied" : "Copy"}</button>
      )}
    </div>
  );
}

export function Empty({ title, children }: { title: string; children: ComponentChildren }) {
  return (
    <div class="empty">
      <h2>{title}</h2>
      {children}
    </div>
  );
}

export function Notice({ tone, title, children }: { tone: "bad" | "warn"; title: string; children?: ComponentChildren }) {
  return (
    <div class={`notice ${tone}`} role="alert">
      <strong>{title}</strong>
      {children}
    </div>
  );
}

/** Shows a live value, its loading state, and its error. */
export function Shown<T>({ live, children }: { live: Live<T>; children: (value: T) => ComponentChildren }) {
  const value = live.value.value;
  const error = live.error.value;
  return (
    <>
      {error && (
        <Notice tone="bad" title={value === undefined ? "This could not be loaded." : "This could not be refreshed; it shows the last known state."}>
          <p>{error.message}</p>
          <button type="button" onClick={() => live.refresh()}>Try again</button>
        </Notice>
      )}
      {value === undefined ? !error && <p class="loading" role="status">Loading…</p> : children(value)}
    </>
  );
}

export function Search(props: { label: string; value: string; onChange: (value: string) => void }) {
  return (
    <input
      type="search" class="search" aria-label={props.label} placeholder={props.label} value={props.value}
      autocomplete="off" spellcheck={false} onInput={(event) => props.onChange(event.currentTarget.value)}
    />
  );
}

export function Select(props: { label: string; value: string; options: string[]; onChange: (value: string) => void }) {
  return (
    <select aria-label={props.label} value={props.value} onChange={(event) => props.onChange(event.currentTarget.value)}>
      <option value="">{props.label}: any</option>
      {props.options.map((option) => <option key={option} value={option}>{option}</option>)}
    </select>
  );
}

/** A table that scrolls sideways by itself on a narrow screen. */
export function Table({ caption, head, children }: { caption: string; head: string[]; children: ComponentChildren }) {
  return (
    <div class="table">
      <table>
        <caption class="hidden">{caption}</caption>
        <thead><tr>{head.map((title) => <th key={title} scope="col">{title}</th>)}</tr></thead>
        <tbody>{children}</tbody>
      </table>
    </div>
  );
}

/** Whether the text contains every word of a filter. */
export function matches(filter: string, ...text: (string | undefined)[]): boolean {
  const all = text.join(" ").toLowerCase();
  return filter.toLowerCase().split(/\s+/).every((word) => all.includes(word));
}

export function plural(count: number, one: string, many = `${one}s`): string {
  return `${count.toLocaleString()} ${count === 1 ? one : many}`;
}
