// What the compiler can't say: dist/cjs is CommonJS with the same types, and there `require` of the
// advisory drop-in is the function itself.
import { copyFileSync, readdirSync, writeFileSync } from "node:fs";

writeFileSync("dist/cjs/package.json", '{ "type": "commonjs" }\n');
for (const name of readdirSync("dist/esm/compat").filter((name) => name.endsWith(".d.ts"))) {
  copyFileSync(`dist/esm/compat/${name}`, `dist/cjs/compat/${name}`);
}
for (const name of ["advisory-function.cjs", "advisory-function.d.cts"]) {
  copyFileSync(`src/compat/${name}`, `dist/cjs/compat/${name}`);
}
