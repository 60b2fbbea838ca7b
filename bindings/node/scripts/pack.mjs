// Packs the package and the one of this platform, installs both into an empty project without scripts, and tries
// them there. `node scripts/pack.mjs NATIVE COMMAND PLACE` prints where the two files are.
import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { chmodSync, copyFileSync, cpSync, mkdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { createRequire } from "node:module";
import { join, resolve } from "node:path";
import { fileURLToPath } from "node:url";

const project = fileURLToPath(new URL("..", import.meta.url));
const { platforms } = createRequire(import.meta.url)("../dist/cjs/native.js");
const env = { ...process.env, npm_config_update_notifier: "false", npm_config_fund: "false" };
const run = (cwd, command, ...args) => execFileSync(command, args, { cwd, env, encoding: "utf8", stdio: ["ignore", "pipe", "inherit"] });
const write = (path, value) => writeFileSync(path, JSON.stringify(value, null, 2));

export function pack(native, command, place) {
  rmSync(place, { recursive: true, force: true });
  const { version, license, engines, ...rest } = JSON.parse(readFileSync(join(project, "package.json"), "utf8"));
  const [triple] = platforms();
  const [platform, binary] = [`tenure-${triple}`, join(place, `tenure-${triple}`)];
  mkdirSync(join(binary, "bin"), { recursive: true });
  copyFileSync(native, join(binary, "tenure.node"));
  copyFileSync(command, join(binary, "bin", "tenure"));
  chmodSync(join(binary, "bin", "tenure"), 0o755);
  write(join(binary, "package.json"), {
    name: platform, version, license, engines, description: `The native part of tenure for ${triple}`,
    main: "tenure.node", os: [process.platform], cpu: [process.arch],
    ...(process.platform === "linux" ? { libc: [triple.endsWith("musl") ? "musl" : "glibc"] } : {}),
  });
  const main = join(place, "tenure");
  for (const name of ["dist", "bin", "README.md"]) {
    cpSync(join(project, name), join(main, name), { recursive: true, filter: (path) => !path.endsWith(".node") });
  }
  const { devDependencies, scripts, ...shipped } = rest;
  write(join(main, "package.json"), { ...shipped, version, license, engines, optionalDependencies: { [platform]: version } });
  return [binary, main].map((from) => {
    const [{ filename }] = JSON.parse(run(place, "npm", "pack", from, "--json", "--ignore-scripts"));
    return join(place, filename);
  });
}

/** Installs them where nothing else is, and does what a user does first. */
export function tryThem(files, place) {
  const home = join(place, "fresh");
  mkdirSync(home);
  write(join(home, "package.json"), { private: true });
  run(home, "npm", "install", "--ignore-scripts", "--no-audit", "--offline", "--loglevel=error", ...files);
  const code = (open, close) => `${open}
    const election = await Election.open("e", "sqlite:" + process.argv[2]);
    console.log(await election.lead((reign) => "leads as term " + reign.term), typeof LeaderElection, typeof createLeader, typeof elector);
    await election.stop();
  ${close}`;
  const names = [["{ Election }", "tenure"], ["{ LeaderElection }", "tenure/compat/leader-election"],
    ["{ createLeader }", "tenure/compat/redis-leader"], ["elector", "tenure/compat/advisory"]];
  const imports = names.map(([name, from]) => `import ${name} from "${from}";`).join("\n");
  const requires = names.map(([name, from]) => `const ${name} = require("${from}");`).join("\n");
  writeFileSync(join(home, "a.mjs"), code(imports, ""));
  writeFileSync(join(home, "a.cjs"), code(`${requires}\n(async () => {`, "})();"));
  for (const [at, name] of ["a.mjs", "a.cjs"].entries()) {
    assert.equal(run(home, process.execPath, name, "a.db").trim(), `leads as term ${at + 1} function function function`);
  }
  assert.match(run(home, "npx", "--no-install", "tenure", "--version"), /^tenure \d/);
}

if (process.argv[1] === fileURLToPath(import.meta.url)) {
  const [native, command, place] = process.argv.slice(2).map((path) => resolve(path));
  const files = pack(native, command, place);
  tryThem(files, place);
  for (const file of files) console.log(file);
}
