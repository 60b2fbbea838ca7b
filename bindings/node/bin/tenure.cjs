#!/usr/bin/env node
// Runs the command, which comes with the package of this platform.
"use strict";
const { spawn } = require("node:child_process");
const { dirname, join } = require("node:path");
const { constants } = require("node:os");

const { platforms } = require("../dist/cjs/native.js");

function find() {
  for (const name of platforms()) {
    try {
      return join(dirname(require.resolve(`tenure-${name}/package.json`)), "bin", "tenure");
    } catch {
      // The next one.
    }
  }
  console.error(`tenure: the package tenure-${platforms()[0]} is missing; install it, or build the command with cargo`);
  process.exit(125);
}

const child = spawn(find(), process.argv.slice(2), { stdio: "inherit" });
// It decides what a signal does. From a terminal it gets them itself.
for (const signal of ["SIGINT", "SIGTERM", "SIGHUP", "SIGQUIT"]) {
  process.on(signal, () => {
    if (signal !== "SIGINT" || !process.stdin.isTTY) child.kill(signal);
  });
}
child.on("error", (error) => {
  console.error(`tenure: ${error.message}`);
  process.exit(125);
});
child.on("exit", (code, signal) => process.exit(code ?? 128 + (constants.signals[signal] ?? 0)));
