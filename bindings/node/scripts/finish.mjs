// What the compiler can't say: dist/cjs is CommonJS with the same types, there `require` of the advisory
// drop-in is the function itself, and the native package exists once, for both module systems.
import { copyFileSync, readdirSync, writeFileSync } from "node:fs";
import { createRequire } from "node:module";

writeFileSync("dist/cjs/package.json", '{ "type": "commonjs" }\n');
for (const name of readdirSync("dist/esm/compat").filter((name) => name.endsWith(".d.ts"))) {
  copyFileSync(`dist/esm/compat/${name}`, `dist/cjs/compat/${name}`);
}
for (const name of ["advisory-function.cjs", "advisory-function.d.cts"]) {
  copyFileSync(`src/compat/${name}`, `dist/cjs/compat/${name}`);
}
const require = createRequire(import.meta.url);
for (const name of readdirSync("types").map((name) => name.replace(".d.ts", ""))) {
  for (const kind of ["esm", "cjs"]) copyFileSync(`types/${name}.d.ts`, `dist/${kind}/${name}.d.ts`);
  const exported = Object.keys(require(`../dist/cjs/${name}.js`)).join(", ");
  writeFileSync(`dist/esm/${name}.js`, `import all from "../cjs/${name}.js";\nexport const { ${exported} } = all;\n`);
}
