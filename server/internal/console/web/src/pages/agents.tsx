import { liveAgents, PAGE, type LiveList, type Loaded } from "../list";
import { useLive } from "../live";
import { Title } from "../shell";
import { Ago, Since } from "../time";
import type { Agent, Connection } from "../types";
import { Badge, Command, Empty, plural, Shown, Table } from "../ui";
import { agentState } from "../words";
import { ENROLL_AGENT } from "./hints";

export function Agents() {
  const live = useLive(() => liveAgents(PAGE), []);
  return (
    <>
      <Title text="Agents" />
      <Shown live={live}>{(loaded) => <List loaded={loaded} live={live} />}</Shown>
    </>
  );
}

function List({ loaded, live }: { loaded: Loaded<Agent>; live: LiveList<Agent> }) {
  if (loaded.items.length === 0) {
    return (
      <Empty title="No agents yet">
        <p>Enroll an agent and apply the printed manifest to the cluster. It connects to this server and appears here immediately.</p>
        <Command text={ENROLL_AGENT} />
      </Empty>
    );
  }
  return (
    <>
      <Table caption="Agents" head={["Agent", "State", "Replicas", "Kubernetes", "Last seen", "Scope", "Targets"]}>
        {loaded.items.map((agent) => <Row key={agent.id} agent={agent} />)}
      </Table>
      <div class="paging">
        <span role="status">{plural(loaded.items.length, "agent")}{loaded.next && " loaded; there are more on the server"}</span>
        {loaded.next && <button type="button" onClick={() => live.more()}>Load more</button>}
      </div>
    </>
  );
}

function Row({ agent }: { agent: Agent }) {
  const replicas = agent.connections ?? [];
  const labels = Object.entries(agent.labels ?? {}).map(([key, value]) => `${key}=${value}`);
  const kube = [...new Set(replicas.map((c) => c.kubeVersion).filter(Boolean))];
  return (
    <tr>
      <th scope="row">
        {agent.name}
        {labels.length > 0 && <div class="muted small">{labels.join(" ")}</div>}
        {(agent.warnings ?? []).map((w) => <div key={w.reason + w.message} class="warning small">{w.reason}: {w.message}</div>)}
      </th>
      <td><State agent={agent} /></td>
      <td>{replicas.length > 0 ? replicas.map((c) => <Replica key={c.replica} c={c} />) : <span class="muted">none</span>}</td>
      <td>{kube.length > 0 ? kube.join(", ") : <span class="muted">–</span>}</td>
      <td>{agent.connected ? "now" : <Ago at={agent.lastSeenAt} />}</td>
      <td>{agent.scope}{(agent.namespaces?.length ?? 0) > 0 && <div class="muted small">{agent.namespaces?.join(", ")}</div>}</td>
      <td class="number">{agent.targets}</td>
    </tr>
  );
}

function State({ agent }: { agent: Agent }) {
  switch (agentState(agent)) {
    case "connected":
      return <Badge tone="ok">Connected</Badge>;
    case "stale":
      return <Badge tone="stale" title="Not connected: the current state of the cluster is unknown">Stale since <Since at={agent.lastSeenAt} /></Badge>;
    case "never":
      return <Badge tone="idle" title={`Apply its manifest to the cluster: ${ENROLL_AGENT}`}>Never connected</Badge>;
  }
}

function Replica({ c }: { c: Connection }) {
  return (
    <div class="replica" title={[c.remoteAddr, c.clusterUID && `cluster ${c.clusterUID}`].filter(Boolean).join(" · ")}>
      {c.replica}
      <div class="muted small">{c.version && `${c.version} · `}{c.connected ? <>connected <Ago at={c.connectedAt} /></> : <>gone, last seen <Ago at={c.lastSeenAt} /></>}</div>
    </div>
  );
}
