// Speaks as much PostgREST as `rpc` needs, before a real PostgreSQL: POST /rest/v1/rpc/NAME with the
// parameters by name; rows as a list, one value bare; errors with their SQLSTATE, and PGRST202 for a
// function that is not there.
import { createServer } from "node:http";

import pg from "pg";

export async function startPostgrest(url) {
  const pool = new pg.Pool({ connectionString: url });
  pool.on("error", () => {});
  const state = { hangs: false, calls: [] };
  const server = createServer(async (request, response) => {
    const body = [];
    for await (const part of request) body.push(part);
    const name = decodeURIComponent(new URL(request.url, "http://x").pathname.split("/").pop());
    const params = JSON.parse(Buffer.concat(body).toString() || "{}");
    state.calls.push(name);
    if (state.hangs) return;
    const answer = (status, value) => {
      response.writeHead(status, { "content-type": "application/json" });
      response.end(JSON.stringify(value));
    };
    const args = Object.keys(params).map((key, index) => `"${key}" => $${index + 1}`).join(", ");
    try {
      const { rows, fields } = await pool.query(`SELECT * FROM "${name}"(${args})`, Object.values(params));
      const isBare = fields.length === 1 && fields[0].name === name;
      answer(200, isBare ? rows[0][name] : rows);
    } catch (error) {
      if (error.code === "42883") answer(404, { code: "PGRST202", message: `no function ${name}`, details: null, hint: null });
      else answer(400, { code: error.code, message: error.message, details: null, hint: null });
    }
  });
  await new Promise((resolve) => server.listen(0, "127.0.0.1", resolve));
  const stop = async () => {
    server.closeAllConnections();
    await new Promise((resolve) => server.close(resolve));
    await pool.end();
  };
  return { url: `http://127.0.0.1:${server.address().port}`, state, stop };
}
