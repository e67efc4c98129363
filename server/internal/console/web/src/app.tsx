// Chooses between the sign-in page and the current page.

import { useSignal } from "@preact/signals";
import { useEffect } from "preact/hooks";
import { Failure, loginConfig, tenantsOf, whoAmI } from "./api";
import { Agents } from "./pages/agents";
import { DeploymentPage } from "./pages/deployment";
import { Deployments } from "./pages/deployments";
import { Events } from "./pages/events";
import { Fleet } from "./pages/fleet";
import { SignIn } from "./pages/signin";
import { address, decode, Link, settle } from "./router";
import { foundCookie, session } from "./session";
import { Shell, Title } from "./shell";
import { openStream } from "./stream";
import { Command, Empty, Notice } from "./ui";

export function App() {
  const current = session.value;
  if (current === undefined) return <Opening />;
  if (current.kind === "none") return <SignIn />;
  return <SignedIn key={current.kind === "token" ? current.token : ""} />;
}

/** Checks whether the browser has a session. If the server does not respond, the sign-in page shows it. */
function Opening() {
  useEffect(() => {
    loginConfig().then((config) => foundCookie(config.session === true), () => foundCookie(false));
  }, []);
  return <p class="loading" role="status">Loading…</p>;
}

interface Identity {
  name: string;
  tenants: string[];
  /** There are tenants that are not in the list. */
  more: boolean;
}

function SignedIn() {
  const me = useSignal<Identity | undefined>(undefined);
  const error = useSignal("");
  const identify = () => {
    error.value = "";
    identity().then(
      (found) => {
        me.value = found;
        const chosen = home(found.tenants);
        if (!address.value.tenant && chosen) settle(chosen);
      },
      // A refused user is already signed out.
      (failure) => { error.value = failure instanceof Failure ? failure.message : String(failure); },
    );
  };
  useEffect(identify, []);
  const { tenant } = address.value;
  const known = !me.value || me.value.more || me.value.tenants.includes(tenant);
  return (
    <Shell who={me.value?.name ?? ""} tenants={me.value?.tenants ?? []}>
      {tenant && known && <InTenant key={tenant} />}
      {me.value && !known && <NoTenant asked={tenant} have={me.value.tenants} />}
      {!tenant && !me.value && !error.value && <p class="loading" role="status">Loading…</p>}
      {!tenant && error.value && (
        <Notice tone="bad" title="This could not be loaded."><p>{error.value}</p><button type="button" onClick={identify}>Try again</button></Notice>
      )}
    </Shell>
  );
}

async function identity(): Promise<Identity> {
  const me = await whoAmI();
  const { names, more } = await tenantsOf(me);
  return { name: me.name || me.role || "", tenants: names, more };
}

/** The default tenant of an address without one. */
function home(tenants: string[]): string {
  return tenants.includes("default") ? "default" : (tenants[0] ?? "");
}

function InTenant() {
  useEffect(() => openStream(), []);
  return <CurrentPage />;
}

function NoTenant({ asked, have }: { asked: string; have: string[] }) {
  const title = asked ? `There is no tenant ${asked}, or you have no role in it` : "You have no role in any tenant";
  return (
    <>
      <Title text="No such tenant" />
      <Empty title={title}>
        {have.length > 0
          ? <p>You may look into {have.map((name, i) => <>{i > 0 && ", "}<Link key={name} tenant={name} to="/">{name}</Link></>)}.</p>
          : <p>Ask an administrator of a tenant to add you:</p>}
        {have.length === 0 && <Command text="kedge tenant member set person NAME viewer --tenant TENANT" />}
      </Empty>
    </>
  );
}

function CurrentPage() {
  const { path } = address.value;
  const [, first = "", second = "", ...more] = path.split("/");
  if (more.length === 0 && first === "deployments" && second) {
    const name = decode(second);
    return <DeploymentPage key={name} name={name} />;
  }
  if (!second) {
    switch (first) {
      case "": return <Fleet />;
      case "deployments": return <Deployments />;
      case "agents": return <Agents />;
      case "events": return <Events />;
    }
  }
  return <Lost path={path} />;
}

function Lost({ path }: { path: string }) {
  return (
    <>
      <Title text="No such page" />
      <Empty title={`There is nothing at ${path}`}>
        <p>Go to the <Link to="/">fleet</Link> or to the <Link to="/deployments">deployments</Link>.</p>
      </Empty>
    </>
  );
}
