import { useSignal } from "@preact/signals";
import type { ObjectStatus, Target } from "../types";
import { Reason, HealthBadge, matches, plural, Search, Select, Table, TargetSync } from "../ui";
import { badness, isStale, objectHealth } from "../words";

/** Number of rows per page: the worst are first, and thousands of rows are not useful. */
const BUDGET = 200;

interface Row {
  target: Target;
  object: ObjectStatus;
  key: string;
}

export function Objects({ targets }: { targets: Target[] }) {
  const filter = useSignal("");
  const agent = useSignal("");
  const budget = useSignal(BUDGET);
  const all = rowsOf(targets);
  const rows = all.filter((row) => (!agent.value || row.target.agent === agent.value) && matchesRow(filter.value, row));
  return (
    <section>
      <div class="title">
        <h2>Objects</h2>
        <div class="filters">
          <Search label="Filter by kind, name, health, text…" value={filter.value} onChange={(value) => { filter.value = value; }} />
          {targets.length > 1 && <Select label="Agent" value={agent.value} options={targets.map((t) => t.agent).sort()} onChange={(value) => { agent.value = value; }} />}
        </div>
      </div>
      {rows.length > 0 ? <ObjectTable rows={rows.slice(0, budget.value)} many={targets.length > 1} /> : <p class="calm">{all.length === 0 ? "No objects were reported yet." : "No object matches the filter."}</p>}
      {rows.length > 0 && (
        <div class="paging">
          <span role="status">{rows.length > budget.value ? `The worst ${budget.value} of ${plural(rows.length, "object")}` : plural(rows.length, "object")}</span>
          {rows.length > budget.value && <button type="button" onClick={() => { budget.value += BUDGET; }}>Show more</button>}
        </div>
      )}
    </section>
  );
}

function rowsOf(targets: Target[]): Row[] {
  const rows = targets.flatMap((target) => (target.objects ?? []).map((object) => ({ target, object, key: keyOf(target, object) })));
  const bad = (row: Row) => badness({ sync: row.object.sync, health: objectHealth(row.target, row.object) });
  return rows.sort((a, b) => bad(b) - bad(a) || a.key.localeCompare(b.key));
}

function keyOf(target: Target, o: ObjectStatus): string {
  return [o.kind, o.group, o.namespace, o.name, target.id].join("/");
}

function matchesRow(filter: string, { target, object: o }: Row): boolean {
  return matches(filter, o.kind, o.group, o.namespace, o.name, o.sync, objectHealth(target, o), o.reason, o.message, target.agent);
}

function ObjectTable({ rows, many }: { rows: Row[]; many: boolean }) {
  const head = ["Kind", "Name", ...(many ? ["Agent"] : []), "Sync", "Health", "Message"];
  return (
    <Table caption="Objects, worst first" head={head}>
      {rows.map(({ target, object: o, key }) => (
        <tr key={key}>
          <td>{o.kind}{o.group && <span class="muted">.{o.group}</span>}</td>
          <th scope="row">{o.namespace && <span class="muted">{o.namespace}/</span>}{o.name}</th>
          {many && <td class="nowrap">{target.agent}</td>}
          <td><TargetSync target={target} sync={o.sync} /></td>
          <td><ObjectHealth target={target} object={o} /></td>
          <td class="message"><Reason of={o} />{o.message}</td>
        </tr>
      ))}
    </Table>
  );
}

/** An object of a stale target is stale too, and shown with its last known state. */
function ObjectHealth({ target, object }: { target: Target; object: ObjectStatus }) {
  return (
    <>
      <HealthBadge health={objectHealth(target, object)} />
      {isStale(target) && <small class="muted"> last known: {object.health}</small>}
    </>
  );
}
