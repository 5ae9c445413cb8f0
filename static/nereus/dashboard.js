// Telemetry, cluster state and clock that the live pages share.

import { Cluster } from "./cluster.js";
import { Telemetry } from "./series.js";

// Reports of a second arrive within the next one, and messages have those of a second; what is younger would look like a gap.
const SETTLE_S = 3;
const NOW_S = 5;

export class Dashboard {
  constructor(live) {
    this.telemetry = new Telemetry();
    this.cluster = new Cluster();
    live
      .on("gateway_second", (data) => this.telemetry.addGatewaySecond(data))
      .on("node_second", (data) => this.cluster.applyNodeSecond(data))
      .on("snapshot", (data) => this.cluster.applySnapshot(data, Date.now() / 1000));
  }

  serverNow() {
    return Date.now() / 1000 + this.cluster.skew;
  }

  // The newest second that all reports should have arrived for.
  end() {
    return Math.floor(this.serverNow()) - SETTLE_S;
  }

  now(application = null) {
    return this.telemetry.now(this.end(), NOW_S, application);
  }
}
