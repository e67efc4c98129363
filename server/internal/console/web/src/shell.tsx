// The frame of every page: navigation, the current user, and whether the page is live.

import type { ComponentChildren } from "preact";
import { useEffect, useRef } from "preact/hooks";
import { logOut } from "./api";
import { address, goToTenant, hasMoved, Link } from "./router";
import { link } from "./stream";
import { clock, now, age } from "./time";
import { Badge } from "./ui";

const PAGES = [
  { path: "/", name: "Fleet" },
  { path: "/deployments", name: "Deployments" },
  { path: "/agents", name: "Agents" },
  { path: "/events", name: "Events" },
];

export function Shell({ who, tenants, children }: { who: string; tenants: string[]; children: ComponentChildren }) {
  const { path } = address.value;
  const here = (page: string) => (page === "/" ? path === "/" : path === page || path.startsWith(`${page}/`));
  return (
    <>
      <a class="skip" href="#main" onClick={skip}>Skip to content</a>
      <header class="top">
        <Link to="/" class="brand"><Mark />Kedge</Link>
        <nav aria-label="Pages">
          {PAGES.map((page) => <Link key={page.path} to={page.path} current={here(page.path)}>{page.name}</Link>)}
        </nav>
        <div class="session">
          <LinkState />
          <Tenant tenants={tenants} />
          <span class="who" title={`Signed in as ${who}`}>{who}</span>
          <button type="button" class="quiet" onClick={() => void logOut()}>Sign out</button>
        </div>
      </header>
      <LostBanner />
      <main id="main" tabIndex={-1}>{children}</main>
      <footer>
        This page uses the public API at <code>/api/v1</code>. <a href="/assets/licenses.txt">Licenses</a>
      </footer>
    </>
  );
}

/** The current tenant, and a switcher if there are several. The kind of page stays the same. */
function Tenant({ tenants }: { tenants: string[] }) {
  const { tenant, path } = address.value;
  if (!tenant) return null;
  if (tenants.length < 2) return <span class="tenant" title="The tenant that this page shows">{tenant}</span>;
  const offered = tenants.includes(tenant) ? tenants : [tenant, ...tenants];
  const choose = (chosen: string) => goToTenant(chosen, `/${path.split("/")[1] ?? ""}`);
  return (
    <select class="tenant" aria-label="Tenant" value={tenant} onChange={(event) => choose(event.currentTarget.value)}>
      {offered.map((name) => <option key={name} value={name}>{name}</option>)}
    </select>
  );
}

/** Moves the focus without an entry in the address bar. */
function skip(event: Event): void {
  event.preventDefault();
  document.getElementById("main")?.focus();
}

export function Mark() {
  return (
    <svg class="mark" viewBox="0 0 24 24" aria-hidden="true">
      <circle cx="12" cy="5" r="2.5" />
      <path d="M12 7.5V21M7.5 11h9M4 13.5c.6 4.4 3.8 7.5 8 7.5s7.4-3.1 8-7.5" />
    </svg>
  );
}

function LinkState() {
  const { state } = link.value;
  return (
    <span id="link-state" aria-live="polite" data-state={state}>
      {state === "live" && <Badge tone="ok" title="Changes arrive as they happen">Live</Badge>}
      {state === "connecting" && <Badge tone="busy">Connecting</Badge>}
      {state === "reconnecting" && <Badge tone="warn" title="The change stream was lost and is being opened again">Reconnecting</Badge>}
    </span>
  );
}

/** Shows how old the page may be while the change stream is not connected. */
function LostBanner() {
  const { state, lostAt } = link.value;
  if (state !== "reconnecting") return null;
  if (lostAt === undefined) return <p class="lost">The server's change stream cannot be opened: this page may be out of date. It keeps trying.</p>;
  return (
    <p class="lost">
      The connection to the server was lost at {clock(lostAt)} ({age(now.value - lostAt)} ago). This page shows what was known
      then and goes on by itself when the server is back.
    </p>
  );
}

/** The heading of a page. It names the document, and takes the focus when the page was navigated to. */
export function Title({ text, children }: { text: string; children?: ComponentChildren }) {
  const heading = useRef<HTMLHeadingElement>(null);
  useEffect(() => {
    document.title = `${text} · Kedge`;
    // Not on the first page, where the browser starts at the top of the document.
    if (hasMoved()) heading.current?.focus({ preventScroll: true });
  }, [text]);
  return (
    <div class="title">
      <h1 tabIndex={-1} ref={heading}>{text}</h1>
      {children}
    </div>
  );
}
