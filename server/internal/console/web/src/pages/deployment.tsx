import type { ComponentChildren } from "preact";
import { getDeploymentInFull, getEvents } from "../api";
import { LiveValue, useLive } from "../live";
import { Link } from "../router";
import { Title } from "../shell";
import type { News } from "../stream";
import { Ago, parse } from "../time";
import type { Deployment, FleetEvent, Target } from "../types";
import { Reason, Command, Empty, HealthBadge, Notice, plural, Shown, SyncBadge, Table, TargetHealth, TargetSync } from "../ui";
import { shortCommit, worstFirst } from "../words";
import { EventTable } from "./events";
import { ENROLL_AGENT } from "./hints";
import { Objects } from "./objects";

const RECENT_EVENTS = 20;

export function DeploymentPage({ name }: { name: string }) {
  const live = useLive(() => {
    const made: LiveValue<Deployment> = new LiveValue(
      (signal) => getDeploymentInFull(name, signal),
      (news) => concerns(made.value.value?.id, news),
    );
    return made;
  }, [name]);
  const events = useLive(
    () => new LiveValue((signal) => getEvents({ deployment: name, limit: RECENT_EVENTS }, signal), (news) => isEventOf(live.value.value?.id, news)),
    [name],
  );
  const gone = live.error.value?.status === 404;
  return (
    <>
      <p class="crumbs"><Link to="/deployments">Deployments</Link></p>
      <Title text={name}>{live.value.value && !gone && <Summary d={live.value.value} />}</Title>
      {gone ? <Gone name={name} /> : <Shown live={live}>{(d) => <Detail d={d} events={events} />}</Shown>}
    </>
  );
}

/** Connections of agents change the states of targets, so they affect every deployment. */
function concerns(id: string | undefined, news: News): boolean {
  if (news.type !== "change") return false;
  const { change } = news;
  if (change.kind === "event" || change.kind === "token") return false;
  if (change.kind === "deployment") return id === undefined || (change.deploymentId || change.id) === id;
  if (change.kind === "status" || change.kind === "desired") return !change.deploymentId || change.deploymentId === id;
  return true;
}

function isEventOf(id: string | undefined, news: News): boolean {
  if (news.type !== "change" || news.change.kind !== "event") return false;
  return !news.change.deploymentId || news.change.deploymentId === id;
}

function Gone({ name }: { name: string }) {
  return (
    <Empty title={`There is no deployment ${name}`}>
      <p>It was deleted, or it never existed. See <Link to="/deployments">all deployments</Link>.</p>
    </Empty>
  );
}

function Summary({ d }: { d: Deployment }) {
  return <div class="summary"><SyncBadge sync={d.sync} health={d.health} /> <HealthBadge health={d.health} /></div>;
}

function Detail({ d, events }: { d: Deployment; events: LiveValue<FleetEvent[]> }) {
  const targets = worstFirst(d.targets ?? [], (t) => t.agent);
  return (
    <>
      {d.sourceError && (
        <Notice tone="bad" title="The newest revision could not be used.">
          <pre>{d.sourceError}</pre>
          <p>{d.commit ? `What runs is still ${shortCommit(d.commit)}. ` : ""}Fix it in Git and push: it is picked up by itself.</p>
        </Notice>
      )}
      {parse(d.deletedAt) !== undefined && <Notice tone="warn" title="This deployment is being deleted."><p>Each agent deletes its objects. Requested <Ago at={d.deletedAt} />.</p></Notice>}
      {d.message && d.message !== d.sourceError && <p class="headline"><Reason of={d} />{d.message}</p>}
      <Facts d={d} />
      <section>
        <h2>Clusters</h2>
        {targets.length > 0 ? <Targets targets={targets} /> : <NoTargets environment={d.environment} />}
        {targets.length < d.counts.targets && <p class="calm">{targets.length.toLocaleString()} of {plural(d.counts.targets, "cluster")}: those that have failed and the first by name. All of them: kedge status {d.name}</p>}
      </section>
      {targets.length > 0 && <Objects targets={targets} />}
      <section>
        <h2>Recent events</h2>
        <Shown live={events}>
          {(list) => (list.length > 0 ? <EventTable events={list} without="deployment" /> : <p class="calm">No events yet.</p>)}
        </Shown>
      </section>
    </>
  );
}

function Fact({ name, children }: { name: string; children: ComponentChildren }) {
  return <div><dt>{name}</dt><dd>{children}</dd></div>;
}

function Facts({ d }: { d: Deployment }) {
  const yes = [d.policy.prune ? "prune" : "keep what left Git", d.policy.adopt && "adopt", d.policy.allowEmpty && "allow empty"];
  return (
    <dl class="facts">
      <Fact name="Repository"><code>{d.source.repoURL}</code></Fact>
      <Fact name="Path"><code>{d.source.path || "."}</code></Fact>
      <Fact name="Revision">{d.source.revision ? <code>{d.source.revision}</code> : "default branch"}</Fact>
      {(d.source.globs?.length ?? 0) > 0 && <Fact name="Files"><code>{d.source.globs?.join(" ")}</code></Fact>}
      <Fact name="Commit">{d.commit ? <><code title={d.commit}>{shortCommit(d.commit)}</code> <Ago at={d.renderedAt} /></> : "none yet"}</Fact>
      <Fact name="Environment">{d.environment}</Fact>
      <Fact name="Namespace">{d.namespace || "default"}</Fact>
      <Fact name="Policy">{yes.filter(Boolean).join(", ")}</Fact>
      <Fact name="Created"><Ago at={d.createdAt} missing="–" /></Fact>
    </dl>
  );
}

function NoTargets({ environment }: { environment: string }) {
  return (
    <Empty title={`No agent belongs to the environment ${environment}`}>
      <p>As soon as it does, this deployment is applied there. Enroll an agent, or add one to the environment:</p>
      <Command text={ENROLL_AGENT} />
    </Empty>
  );
}

function Targets({ targets }: { targets: Target[] }) {
  return (
    <Table caption="Clusters, worst first" head={["Agent", "Sync", "Health", "Commit", "Generation", "As of", "Message"]}>
      {targets.map((t) => (
        <tr key={t.id}>
          <th scope="row">{t.agent}</th>
          <td><TargetSync target={t} sync={t.sync} /></td>
          <td><TargetHealth target={t} /></td>
          <td>{t.commit ? <code title={t.commit}>{shortCommit(t.commit)}</code> : <span class="muted">none</span>}</td>
          <td class="number" title="observed / desired">{t.observedGeneration}/{t.generation}</td>
          <td><Ago at={t.asOf} missing="never reported" /></td>
          <td class="message"><Reason of={t} />{t.message}</td>
        </tr>
      ))}
    </Table>
  );
}
