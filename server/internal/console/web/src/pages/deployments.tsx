import { liveDeployments, PAGE, type LiveList, type Loaded } from "../list";
import { useLive } from "../live";
import { address, deploymentPath, Link, setQuery } from "../router";
import { Title } from "../shell";
import type { Deployment } from "../types";
import { Command, Empty, HealthBadge, matches, plural, Search, Select, Shown, SyncBadge, Table, Why } from "../ui";
import { HEALTH, shortCommit, SYNC, targetsDone } from "../words";
import { CREATE_DEPLOYMENT } from "./hints";

const HEAD = ["Deployment", "Sync", "Health", "Commit", "Environment", "Targets", "Message"];

export function Deployments() {
  const live = useLive(() => liveDeployments(PAGE), []);
  return (
    <>
      <Title text="Deployments"><Filters /></Title>
      <Shown live={live}>{(loaded) => <List loaded={loaded} live={live} />}</Shown>
    </>
  );
}

function Filters() {
  const { query } = address.value;
  return (
    <div class="filters">
      <Search label="Filter by name, environment, text…" value={query.get("q") ?? ""} onChange={(q) => setQuery({ q })} />
      <Select label="Sync" value={query.get("sync") ?? ""} options={Object.keys(SYNC)} onChange={(sync) => setQuery({ sync })} />
      <Select label="Health" value={query.get("health") ?? ""} options={Object.keys(HEALTH)} onChange={(health) => setQuery({ health })} />
    </div>
  );
}

function wanted(d: Deployment): boolean {
  const { query } = address.value;
  if (query.get("sync") && query.get("sync") !== d.sync) return false;
  if (query.get("health") && query.get("health") !== d.health) return false;
  return matches(query.get("q") ?? "", d.name, d.environment, d.sync, d.health, d.commit, d.reason, d.message, d.sourceError, d.source.repoURL);
}

function List({ loaded, live }: { loaded: Loaded<Deployment>; live: LiveList<Deployment> }) {
  if (loaded.items.length === 0) {
    return (
      <Empty title="No deployments yet">
        <p>Declare what to deploy: a Git repository and a folder in it. Every push to it is then deployed.</p>
        <Command text={CREATE_DEPLOYMENT} />
      </Empty>
    );
  }
  const rows = loaded.items.filter(wanted);
  return (
    <>
      {rows.length > 0 && <Table caption="Deployments" head={HEAD}>{rows.map((d) => <Row key={d.id} d={d} />)}</Table>}
      {rows.length === 0 && <p class="calm">None of the loaded deployments matches the filter.</p>}
      <div class="paging">
        <span role="status">
          {rows.length === loaded.items.length ? plural(rows.length, "deployment") : `${rows.length.toLocaleString()} of ${plural(loaded.items.length, "deployment")}`}
          {loaded.next && " loaded; there are more on the server"}
        </span>
        {loaded.next && <button type="button" onClick={() => live.more()}>Load more</button>}
      </div>
    </>
  );
}

function Row({ d }: { d: Deployment }) {
  return (
    <tr>
      <th scope="row"><Link to={deploymentPath(d.name)}>{d.name}</Link></th>
      <td><SyncBadge sync={d.sync} health={d.health} /></td>
      <td><HealthBadge health={d.health} /></td>
      <td>{d.commit ? <code title={d.commit}>{shortCommit(d.commit)}</code> : <span class="muted">none yet</span>}</td>
      <td>{d.environment}</td>
      <td class="number">{targetsDone(d)}</td>
      <td class="message"><Why deployment={d} /></td>
    </tr>
  );
}
