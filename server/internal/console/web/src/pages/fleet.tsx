import type { ComponentChildren } from "preact";
import { liveAgents, liveDeployments, type Loaded } from "../list";
import { useLive } from "../live";
import { deploymentPath, Link } from "../router";
import { Title } from "../shell";
import type { Agent, Deployment, Health, Sync } from "../types";
import { Badge, Command, Empty, HealthBadge, plural, Shown, SyncBadge, Table, Why } from "../ui";
import { agentState, HEALTH, needsAttention, SYNC, targetsDone, worstFirst, type Tone } from "../words";
import { CREATE_DEPLOYMENT, ENROLL_AGENT } from "./hints";

/** Maximum number of counted rows; above it, counts are shown as partial. */
const COUNTED = 10_000;
const SHOWN = 20;

export function Fleet() {
  const agents = useLive(() => liveAgents(COUNTED), []);
  const deployments = useLive(() => liveDeployments(COUNTED), []);
  return (
    <>
      <Title text="Fleet" />
      <div class="cards">
        <Shown live={agents}>{(loaded) => <AgentCard loaded={loaded} />}</Shown>
        <Shown live={deployments}>{(loaded) => <DeploymentCards loaded={loaded} />}</Shown>
      </div>
      {agents.value.value?.items.length === 0 && <NoAgents />}
      {deployments.value.value && <Attention loaded={deployments.value.value} agents={agents.value.value?.items.length ?? 0} />}
    </>
  );
}

function NoAgents() {
  return (
    <Empty title="No cluster is connected yet">
      <p>Enroll an agent and apply the printed manifest to the cluster. It connects to this server and appears here immediately.</p>
      <Command text={ENROLL_AGENT} />
    </Empty>
  );
}

interface Count {
  word: string;
  count: number;
  tone: Tone;
  to: string;
}

function AgentCard({ loaded }: { loaded: Loaded<Agent> }) {
  const of = (state: string) => loaded.items.filter((agent) => agentState(agent) === state).length;
  const counts: Count[] = [
    { word: "Connected", count: of("connected"), tone: "ok", to: "/agents" },
    { word: "Stale", count: of("stale"), tone: "stale", to: "/agents" },
    { word: "Never connected", count: of("never"), tone: "idle", to: "/agents" },
  ];
  return <Card title="Agents" to="/agents" total={loaded.items.length} partial={loaded.next !== ""} counts={counts} />;
}

function DeploymentCards({ loaded }: { loaded: Loaded<Deployment> }) {
  const total = loaded.items.length;
  const partial = loaded.next !== "";
  const health = (Object.keys(HEALTH) as Health[]).map((word) => ({
    word, tone: HEALTH[word].tone, to: `/deployments?health=${word}`,
    count: loaded.items.filter((d) => d.health === word).length,
  }));
  const sync = (Object.keys(SYNC) as Sync[]).map((word) => ({
    word, tone: SYNC[word].tone, to: `/deployments?sync=${word}`,
    count: loaded.items.filter((d) => d.sync === word).length,
  }));
  return (
    <>
      <Card title="Deployments by health" to="/deployments" total={total} partial={partial} counts={health} />
      <Card title="Deployments by sync" to="/deployments" total={total} partial={partial} counts={sync} />
    </>
  );
}

function Card(props: { title: string; to: string; total: number; partial: boolean; counts: Count[] }) {
  const present = props.counts.filter((c) => c.count > 0);
  return (
    <section class="card">
      <h2><Link to={props.to}>{props.title}</Link></h2>
      <p class="total">{props.total.toLocaleString()}{props.partial && <small> counted, there are more</small>}</p>
      <div class="bar" aria-hidden="true">
        {present.map((c) => <span key={c.word} class={c.tone} style={{ flexGrow: c.count }} />)}
      </div>
      <ul class="counts">
        {present.map((c) => (
          <li key={c.word}>
            <Link to={c.to}><Badge tone={c.tone}>{c.word}</Badge> <b>{c.count.toLocaleString()}</b></Link>
          </li>
        ))}
        {present.length === 0 && <li class="muted">none</li>}
      </ul>
    </section>
  );
}

function Attention({ loaded, agents }: { loaded: Loaded<Deployment>; agents: number }) {
  if (loaded.items.length === 0) {
    if (agents === 0) return null; // one next step at a time
    return (
      <Empty title="Nothing is deployed yet">
        <p>Declare what to deploy: a Git repository and a folder in it. Every push to it is then deployed.</p>
        <Command text={CREATE_DEPLOYMENT} />
      </Empty>
    );
  }
  const bad = worstFirst(loaded.items.filter(needsAttention), (d) => d.name);
  return (
    <section>
      <h2>Needs attention</h2>
      {bad.length === 0 ? <p class="calm">Nothing: no deployment has failed, is stale, or is held.</p> : <AttentionTable rows={bad} />}
    </section>
  );
}

function AttentionTable({ rows }: { rows: Deployment[] }) {
  const hidden = rows.length - SHOWN;
  const more: ComponentChildren = hidden > 0 && (
    <p>{plural(hidden, "more deployment")} not shown: see <Link to="/deployments">all deployments</Link>.</p>
  );
  return (
    <>
      <Table caption="Deployments that need attention, worst first" head={["Deployment", "Health", "Sync", "Targets", "Why"]}>
        {rows.slice(0, SHOWN).map((d) => (
          <tr key={d.id}>
            <th scope="row"><Link to={deploymentPath(d.name)}>{d.name}</Link></th>
            <td><HealthBadge health={d.health} /></td>
            <td><SyncBadge sync={d.sync} health={d.health} /></td>
            <td class="number">{targetsDone(d)}</td>
            <td class="message"><Why deployment={d} /></td>
          </tr>
        ))}
      </Table>
      {more}
    </>
  );
}
