import "./base.css";
import "./parts.css";
import { render } from "preact";
import { App } from "./app";
import { startRouter } from "./router";
import { restore } from "./session";
import { startClock } from "./time";

// First, so that a token stays in the address bar as briefly as possible.
restore();
startRouter();
startClock();
render(<App />, document.getElementById("app")!);
