// Values that are read from the API and read again when a change concerns them. There is no
// polling: the stream says when. At most one read per value is under way; what is asked for
// meanwhile is joined into one more read after it, and a burst of changes rests as long between
// two reads as a read takes, so that a busy fleet costs the server at most half of one connection.

import { signal } from "@preact/signals";
import { useEffect, useMemo } from "preact/hooks";
import { Failure } from "./api";
import { listen, opened, type News } from "./stream";
import { visible } from "./visible";

export abstract class Live<T> {
  readonly value = signal<T | undefined>(undefined);
  readonly error = signal<Failure | undefined>(undefined);
  private running = false;
  private again = false;
  private stop = new AbortController();

  /** Reads whatever is due; joined calls of refresh() make one call of it. */
  protected abstract read(signal: AbortSignal): Promise<T>;
  /** Notes what a change makes due and reports whether anything is. */
  protected abstract note(news: News): boolean;

  /** Reads now and at every change that concerns it, until the returned function is called. */
  start(): () => void {
    this.stop = new AbortController();
    const unlisten = listen((news) => {
      // A read that failed is tried again as soon as the server is back, changed or not.
      const retry = news.type === "open" && this.error.value !== undefined;
      if (this.note(news) || retry) this.refresh();
    });
    this.refresh();
    return () => {
      unlisten();
      this.stop.abort();
    };
  }

  refresh(): void {
    this.again = true;
    if (!this.running) void this.run(this.stop.signal);
  }

  private async run(stop: AbortSignal): Promise<void> {
    this.running = true;
    while (this.again && !stop.aborted) {
      await visible();
      await opened();
      this.again = false;
      const began = performance.now();
      await this.readOnce(stop);
      if (this.again) await rest(performance.now() - began);
    }
    this.running = false;
    // A start() after the stop may have asked while this run was on its way out.
    if (this.again && !this.stop.signal.aborted) void this.run(this.stop.signal);
  }

  private async readOnce(stop: AbortSignal): Promise<void> {
    try {
      const fresh = await this.read(stop);
      if (stop.aborted) return;
      this.value.value = fresh;
      this.error.value = undefined;
    } catch (error) {
      if (stop.aborted) return;
      this.error.value = error instanceof Failure ? error : new Failure(0, `The answer could not be read: ${error}`);
    }
  }
}

/** A single value, read whole. */
export class LiveValue<T> extends Live<T> {
  constructor(
    private readonly fetch: (signal: AbortSignal) => Promise<T>,
    private readonly concerns: (news: News) => boolean,
  ) {
    super();
  }
  protected read(signal: AbortSignal): Promise<T> {
    return this.fetch(signal);
  }
  protected note(news: News): boolean {
    return news.type === "all" || this.concerns(news);
  }
}

/** Makes a live value that runs while the component is shown; made anew when a dep changes. */
export function useLive<L extends Live<unknown>>(make: () => L, deps: unknown[]): L {
  const live = useMemo(make, deps);
  useEffect(() => live.start(), [live]);
  return live;
}

function rest(ms: number): Promise<void> {
  return new Promise((resolve) => setTimeout(resolve, Math.min(ms, 2000)));
}
