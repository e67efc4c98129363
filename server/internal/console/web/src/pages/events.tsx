import { getEvents } from "../api";
import { LiveValue, useLive } from "../live";
import { address, deploymentPath, Link, setQuery } from "../router";
import { Title } from "../shell";
import { At } from "../time";
import type { FleetEvent } from "../types";
import { Badge, Empty, matches, plural, Search, Select, Shown, Table } from "../ui";

const LIMIT = 200;

export function Events() {
  const { query } = address.value;
  const live = useLive(
    () => new LiveValue((signal) => getEvents({ limit: LIMIT }, signal), (news) => news.type === "change" && news.change.kind === "event"),
    [],
  );
  return (
    <>
      <Title text="Events">
        <div class="filters">
          <Search label="Filter by reason, agent, text…" value={query.get("q") ?? ""} onChange={(q) => setQuery({ q })} />
          <Select label="Type" value={query.get("type") ?? ""} options={["Normal", "Warning"]} onChange={(type) => setQuery({ type })} />
        </div>
      </Title>
      <Shown live={live}>{(events) => <List events={events} />}</Shown>
    </>
  );
}

function List({ events }: { events: FleetEvent[] }) {
  if (events.length === 0) {
    return <Empty title="Nothing has happened yet"><p>Connections of agents, syncs, corrected drift, and failures appear here.</p></Empty>;
  }
  const { query } = address.value;
  const type = query.get("type");
  const rows = events.filter((e) => (!type || e.type === type) && matches(query.get("q") ?? "", e.type, e.reason, e.agent, e.deployment, e.object, e.message));
  return (
    <>
      {rows.length > 0 ? <EventTable events={rows} /> : <p class="calm">No event matches the filter.</p>}
      <div class="paging">
        <span role="status">
          {rows.length === events.length ? plural(rows.length, "event") : `${rows.length} of ${plural(events.length, "event")}`}
          {events.length >= LIMIT && ", the newest; older ones: kedge get events"}
        </span>
      </div>
    </>
  );
}

/** Newest first. */
export function EventTable({ events, without }: { events: FleetEvent[]; without?: "deployment" }) {
  const head = ["Time", "Reason", "Agent", ...(without ? [] : ["Deployment"]), "Object", "Message"];
  return (
    <Table caption="Events, newest first" head={head}>
      {events.map((e) => (
        <tr key={e.seq}>
          <td class="nowrap"><At at={e.at} /></td>
          <td><Badge tone={e.type === "Warning" ? "warn" : "idle"} title={e.type}>{e.reason}</Badge></td>
          <td class="nowrap">{e.agent}</td>
          {!without && <td class="nowrap">{e.deployment && <Link to={deploymentPath(e.deployment)}>{e.deployment}</Link>}</td>}
          <td class="object">{e.object}</td>
          <td class="message">{e.message}</td>
        </tr>
      ))}
    </Table>
  );
}
