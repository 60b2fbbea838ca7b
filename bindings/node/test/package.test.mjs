// The packages install into an empty project, without scripts, and run in both module systems.
import { execFileSync } from "node:child_process";
import { existsSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";
import { fileURLToPath } from "node:url";

import { pack, tryThem } from "../scripts/pack.mjs";
import { TENURE } from "./support.mjs";

const NATIVE = fileURLToPath(new URL("../dist/tenure.linux-x64-gnu.node", import.meta.url));
const needs = TENURE && existsSync(NATIVE) ? {} : { skip: "needs the native part and the command, for linux-x64-gnu" };

test("they install into an empty project, and do what a user does first", needs, (t) => {
  const place = mkdtempSync(join(tmpdir(), "tenure-package-"));
  t.after(() => rmSync(place, { recursive: true }));
  // What is built for tests is large: without symbols, and with a stand-in that calls the command, it packs quickly.
  const [native, command] = [join(place, "native"), join(place, "command")];
  execFileSync("strip", ["-o", native, NATIVE]);
  writeFileSync(command, `#!/bin/sh\nexec '${TENURE}' "$@"\n`);
  tryThem(pack(native, command, join(place, "made")), join(place, "made"));
});
