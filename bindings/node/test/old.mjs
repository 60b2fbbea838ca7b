// The three clients that the drop-ins replace, as neighbours in mixed fleets: written after their
// documented behaviour. They have no deadline of their own; that fault is known, so what they believe
// counts here only while the store would agree: within a ttl of the last question that had a yes.
class Old {
  isLeader = false;
  heardAt = 0;

  constructor(client, name, ttl) {
    Object.assign(this, { client, name, ttl, id: `old-${process.pid}` });
  }

  async start() {
    await this.tick();
    this.timer = setInterval(() => void this.tick(), this.ttl / 3);
    return this;
  }

  async tick() {
    const sentAt = Number(process.hrtime.bigint()) / 1e6;
    try {
      this.isLeader = await (this.isLeader ? this.beat() : this.take());
      if (this.isLeader) this.heardAt = sentAt;
    } catch {
      // As the old clients do: it goes on as it was.
    }
  }

  leads = (now) => this.isLeader && now() - this.heardAt < this.ttl * 0.95;

  stop = async () => {
    clearInterval(this.timer);
    if (this.isLeader) await this.free();
    this.isLeader = false;
  };
}

export class OldTable extends Old {
  async ask(sql, ...more) {
    const { rows } = await this.client.query(`SELECT ${sql} AS yes`, [this.name, this.id, ...more]);
    return rows[0].yes;
  }
  take = () => this.ask("try_become_leader($1, $2, $3)", this.ttl / 1000);
  beat = () => this.ask("leader_heartbeat($1, $2)");
  free = () => this.ask("step_down($1, $2)");
}

export class OldLease extends Old {
  take = async () => (await this.client.set(this.name, this.id, "PX", this.ttl, "NX")) === "OK";
  compare = (command, ...more) => this.client.eval(
    `if redis.call('get', KEYS[1]) == ARGV[1] then return redis.call('${command}', KEYS[1]${more.length ? ", ARGV[2]" : ""}) end return 0`,
    1, this.name, this.id, ...more,
  );
  beat = async () => (await this.compare("pexpire", this.ttl)) === 1;
  free = () => this.compare("del");
}

/** Held by a session: what it believes counts while that session lives. */
export class OldLock extends Old {
  take = async () => {
    this.session ??= await this.client.connect();
    this.session.on("error", () => (this.isLeader = false));
    const { rows } = await this.session.query("SELECT pg_try_advisory_lock($1::bigint) AS yes", [this.name]);
    return rows[0].yes;
  };
  beat = async () => true;
  free = () => this.session.query("SELECT pg_advisory_unlock($1::bigint)", [this.name]);
}
