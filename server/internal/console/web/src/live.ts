// Values that are read from the API and read again when a change affects them. There is no
// polling: the stream triggers reads. At most one read per value is running; requests during it
// are joined into one more read, and in a burst of changes the pause between two reads is as long
// as a read, so that a busy fleet costs the server at most half of one connection.

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

  /** Reads everything that is due; joined calls of refresh() cause one call. */
  protected abstract read(signal: AbortSignal): Promise<T>;
  /** Records what must be read after a change, and reports whether anything must. */
  protected abstract note(news: News): boolean;

  /** Reads now and after every relevant change, until the returned function is called. */
  start(): () => void {
    this.stop = new AbortController();
    const unlisten = listen((news) => {
      // A failed read is repeated as soon as the server is back.
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
    // A start() after the stop may have requested a read while this run ended.
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

/** A single value, read completely. */
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

/** Makes a live value that runs while the component is shown; made again when a dep changes. */
export function useLive<L extends Live<unknown>>(make: () => L, deps: unknown[]): L {
  const live = useMemo(make, deps);
  useEffect(() => live.start(), [live]);
  return live;
}

function rest(ms: number): Promise<void> {
  return new Promise((resolve) => setTimeout(resolve, Math.min(ms, 2000)));
}
