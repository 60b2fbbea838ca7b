export { Candidate } from "./candidate.js";
export { Cron, nextTicks } from "./cron.js";
export { Election } from "./election.js";
export { LeadershipLost, OnceFailed, StaleTerm, TenureError } from "./errors.js";
export { metrics } from "./metrics.js";
export { Reign } from "./reign.js";
