// The package installs into an empty project, without scripts, and runs in both module systems.
import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";
import { fileURLToPath } from "node:url";

test("it installs into an empty project", () => {
  const home = mkdtempSync(join(tmpdir(), "tenure-package-"));
  const run = (command, ...args) => execFileSync(command, args, { cwd: home, encoding: "utf8", stdio: ["ignore", "pipe", "ignore"] });
  try {
    const project = fileURLToPath(new URL("..", import.meta.url));
    const [packed] = JSON.parse(run("npm", "pack", project, "--json", "--ignore-scripts"));
    assert.ok(packed.files.every(({ path }) => /^(dist\/.*[^e]$|package.json|README.md)/.test(path)), "no binary");
    writeFileSync(join(home, "package.json"), '{ "private": true }');
    run("npm", "install", "--ignore-scripts", "--no-audit", "--offline", packed.filename);
    writeFileSync(join(home, "a.cjs"), `
      const createLeaderElector = require("tenure/compat/advisory");
      const { LeaderElection } = require("tenure/compat/leader-election");
      const { createLeader } = require("tenure/compat/redis-leader");
      console.log(typeof createLeaderElector, typeof LeaderElection, typeof createLeader);`);
    writeFileSync(join(home, "a.mjs"), `
      import createLeaderElector from "tenure/compat/advisory";
      import { LeaderElection } from "tenure/compat/leader-election";
      import { createLeader } from "tenure/compat/redis-leader";
      console.log(typeof createLeaderElector, typeof LeaderElection, typeof createLeader);`);
    for (const name of ["a.cjs", "a.mjs"]) assert.equal(run("node", name).trim(), "function function function");
  } finally {
    rmSync(home, { recursive: true });
  }
});
