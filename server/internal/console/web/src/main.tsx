import "./base.css";
import "./parts.css";
import { render } from "preact";
import { App } from "./app";
import { startRouter } from "./router";
import { restore } from "./session";
import { startClock } from "./time";

// First of all, so that a token in the address bar is there as short as possible.
restore();
startRouter();
startClock();
render(<App />, document.getElementById("app")!);
