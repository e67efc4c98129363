import { useSignal } from "@preact/signals";
import { useEffect, useRef } from "preact/hooks";
import { Failure, loginConfig, TOKEN_REFUSED, whoAmI } from "../api";
import { refusal, signIn } from "../session";
import { Mark } from "../shell";

export function SignIn() {
  const busy = useSignal(false);
  const provider = useSignal(false);
  const input = useRef<HTMLInputElement>(null);
  useEffect(() => {
    document.title = "Sign in · Kedge";
    input.current?.focus();
    // Without a response, the token can still be used; an attempt shows whether the server is available.
    loginConfig().then((config) => { provider.value = config.oidc; }, () => {});
  }, []);

  const submit = async (event: Event) => {
    event.preventDefault();
    const candidate = input.current?.value.trim() ?? "";
    if (!candidate || busy.value) return;
    busy.value = true;
    refusal.value = "";
    try {
      await whoAmI({ kind: "token", token: candidate });
      signIn(candidate);
    } catch (error) {
      refusal.value = explain(error);
      input.current?.select();
    } finally {
      busy.value = false;
    }
  };

  return (
    <main class="signin">
      <form onSubmit={(event) => void submit(event)} aria-busy={busy.value}>
        <h1><Mark />Kedge</h1>
        {provider.value && <Provider />}
        <label for="token">API token</label>
        <input
          id="token" ref={input} type="password" autocomplete="off" autocapitalize="off" spellcheck={false} required
          aria-describedby={refusal.value ? "refusal hint" : "hint"} aria-invalid={refusal.value !== ""}
        />
        {refusal.value && <p id="refusal" class="refusal" role="alert">{refusal.value}</p>}
        <button type="submit" class={provider.value ? "" : "primary"} disabled={busy.value}>{busy.value ? "Checking…" : "Sign in with the token"}</button>
        <p id="hint">
          <code>kedge-server</code> prints an admin token when it starts for the first time. The token is kept in this tab only
          and is forgotten when the tab is closed.
        </p>
      </form>
    </main>
  );
}

/** Sends the browser to the identity provider, and back to the requested page. */
function Provider() {
  const back = new URLSearchParams({ return: location.pathname + location.search });
  return (
    <>
      <a class="provider" href={`/api/v1/auth/login?${back}`}>Sign in with your organization</a>
      <p class="or">or</p>
    </>
  );
}

function explain(error: unknown): string {
  if (!(error instanceof Failure)) return `That did not work: ${error}`;
  return error.status === 401 ? TOKEN_REFUSED : error.message;
}
