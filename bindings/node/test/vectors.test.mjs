// The engine does what tenure's simulator says, and an engine that is wrong is found out.
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { test } from "node:test";

import { Engine } from "../dist/esm/compat/engine.js";

const stories = JSON.parse(readFileSync(new URL("../../vectors/engine.json", import.meta.url), "utf8"));
const right = stories.filter((story) => !story.fault);
const wrong = stories.filter((story) => story.fault);

/** The step at which an engine does something else than the story, or -1. */
function firstDifference(Kind, story) {
  const { ttl, renew_every: renewEvery, margin, drain, poll } = story;
  const engine = new Kind(
    { ttl, renewEvery, margin, drain, poll },
    { failClosed: story.fail_closed, hasBecome: story.become, hasLose: story.lose },
  );
  return story.steps.findIndex(([at, event, acts]) => {
    return JSON.stringify(engine.handle(at, event)) !== JSON.stringify(acts);
  });
}

test("there are enough stories", () => {
  assert.ok(right.length >= 200);
  assert.ok(wrong.length >= 9);
});

test("the engine does what the simulator says", () => {
  for (const story of right) assert.equal(firstDifference(Engine, story), -1, story.name);
});

test("a story of a wrong engine is not ours", () => {
  for (const story of wrong) {
    assert.equal(firstDifference(Engine, story), story.steps.length - 1, story.fault);
  }
});

const faults = {
  trustFromReply: class extends Engine {
    reply(now, outcome, sentAt, value) {
      super.reply(now, outcome, now, value);
    }
  },
  lateGrantRevives: class extends Engine {
    handle(now, event) {
      this.looksFirst = event[0] === "granted";
      return super.handle(now, event);
    }
    passDeadlines(now) {
      if (!this.looksFirst) super.passDeadlines(now);
      this.looksFirst = false;
    }
  },
  oldTermAgain: class extends Engine {
    sendWhatIsDue(now) {
      this.led = 0;
      super.sendWhatIsDue(now);
    }
  },
  unknownIsYes: class extends Engine {
    renewReply(now, outcome, sentAt, value) {
      if (outcome === "unknown") super.renewReply(now, "granted", sentAt, this.term);
      else super.renewReply(now, outcome, sentAt, value);
    }
  },
  unknownIsNo: class extends Engine {
    renewReply(now, outcome, sentAt, value) {
      super.renewReply(now, outcome === "unknown" ? "refused" : outcome, sentAt, value);
    }
  },
  sendsTwice: class extends Engine {
    sendWhatIsDue(now) {
      this.flight = null;
      super.sendWhatIsDue(now);
    }
  },
  releasesFirst: class extends Engine {
    settle(now) {
      const busy = this.busy;
      this.busy = 0;
      super.settle(now);
      this.busy = busy;
    }
  },
  forgetsTold: class extends Engine {
    settle(now) {
      this.relied = false;
      super.settle(now);
    }
  },
  releasesRunOut: class extends Engine {
    runOut(now) {
      this.drained(now);
    }
  },
  forgetsToProbe: class extends Engine {
    waitAfterFailure(now) {
      super.waitAfterFailure(now);
      this.failures = 1;
    }
  },
  staysOpen: class extends Engine {
    renewReply(now, outcome, sentAt, value) {
      this.options.failClosed = false;
      super.renewReply(now, outcome, sentAt, value);
    }
  },
};

for (const [name, Kind] of Object.entries(faults)) {
  test(`an engine that is wrong fails a story: ${name}`, () => {
    assert.ok(right.some((story) => firstDifference(Kind, story) >= 0));
  });
}
