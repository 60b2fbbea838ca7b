import type * as advisory from "./advisory.js";

declare function createLeaderElector(
  options: advisory.LeaderElectorOptions,
): advisory.LeaderElector;

declare namespace createLeaderElector {
  export type Pool = advisory.Pool;
  export type Logger = advisory.Logger;
  export type NotificationChannel = advisory.NotificationChannel;
  export type LeaderElectorOptions = advisory.LeaderElectorOptions;
  export type LeaderElector = advisory.LeaderElector;
}

export = createLeaderElector;
