/** What is counted in this process, in the text of Prometheus. */
import { load } from "./native.js";

export const metrics = (): string => load().metricsText();
