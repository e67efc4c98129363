// Server-sent events read from a fetch body: EventSource cannot send an Authorization header.

export interface Message {
  event: string;
  id: string;
  data: string;
}

/** Yields each message of a text/event-stream body; heard runs for every chunk, comments included. */
export async function* messages(body: ReadableStream<Uint8Array>, heard: () => void): AsyncGenerator<Message> {
  const reader = body.pipeThrough(new TextDecoderStream() as ReadableWritablePair<string, Uint8Array>).getReader();
  let rest = "";
  let block: string[] = [];
  for (;;) {
    const { done, value } = await reader.read();
    if (done) return;
    heard();
    // A chunk may end anywhere, even between the two characters of a line end.
    const lines = (rest + value).split("\n");
    rest = lines.pop() ?? "";
    for (const line of lines) {
      const clean = line.endsWith("\r") ? line.slice(0, -1) : line;
      if (clean) {
        block.push(clean);
        continue;
      }
      const message = parse(block);
      block = [];
      if (message) yield message;
    }
  }
}

/** Reads the fields of one block; undefined when it holds comments only. */
function parse(lines: string[]): Message | undefined {
  const message: Message = { event: "message", id: "", data: "" };
  let fields = 0;
  for (const line of lines) {
    const colon = line.indexOf(":");
    if (colon === 0) continue;
    const name = colon < 0 ? line : line.slice(0, colon);
    const value = colon < 0 ? "" : line.slice(colon + 1).replace(/^ /, "");
    fields++;
    if (name === "event") message.event = value;
    else if (name === "id") message.id = value;
    else if (name === "data") message.data += (message.data && "\n") + value;
  }
  return fields > 0 ? message : undefined;
}
