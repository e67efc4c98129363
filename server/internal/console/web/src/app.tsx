// Signed in or not, and which page.

import { useSignal } from "@preact/signals";
import { useEffect } from "preact/hooks";
import { Failure, whoAmI } from "./api";
import { Agents } from "./pages/agents";
import { DeploymentPage } from "./pages/deployment";
import { Deployments } from "./pages/deployments";
import { Events } from "./pages/events";
import { Fleet } from "./pages/fleet";
import { SignIn } from "./pages/signin";
import { address, Link } from "./router";
import { token } from "./session";
import { Shell, Title } from "./shell";
import { openStream } from "./stream";
import { Empty } from "./ui";

export function App() {
  return token.value ? <SignedIn key={token.value} bearer={token.value} /> : <SignIn />;
}

function SignedIn({ bearer }: { bearer: string }) {
  const who = useSignal("");
  useEffect(() => openStream(), []);
  useEffect(() => {
    whoAmI(bearer).then(
      (me) => { who.value = me.name || me.role || ""; },
      (error) => {
        // A refused token has signed out already; a server that is away is told by the stream.
        if (!(error instanceof Failure)) throw error;
      },
    );
  }, []);
  return <Shell who={who.value}><CurrentPage /></Shell>;
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

/** A part of a path that is not valid percent-encoding is shown as it stands: no deployment has such a name. */
function decode(part: string): string {
  try {
    return decodeURIComponent(part);
  } catch {
    return part;
  }
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
