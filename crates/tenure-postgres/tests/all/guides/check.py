"""The classes of the guides, with a database that fails at every point."""

import psycopg
from bridge import Bridge


def led(failing):
    psycopg.failing = set(failing)
    bridge = Bridge("url", 4711, "invoices")
    bridge.tick()
    return bridge


bridge = led([])
assert bridge.is_leader and bridge.election.term == 7
bridge.tick()
assert bridge.is_leader, "a sign of life"
psycopg.failing = {"SELECT 1"}
bridge.tick()
assert not bridge.is_leader and psycopg.open_now == 0, "the lock is lost"
psycopg.failing = set()
bridge.tick()
assert bridge.is_leader, "it leads again"
psycopg.failing = {"step_down"}
bridge.stop()
assert not bridge.is_leader and psycopg.open_now == 0, "the database is away when it stops"

points = ["connect", "idle_session", "try_advisory", "try_become", "term FROM", "taken over"]
for point in points:
    bridge = led([point])
    assert not bridge.is_leader, point
    psycopg.failing = {"SELECT 1", "step_down"}
    bridge.tick()
    bridge.stop()
    assert psycopg.open_now == 0, f"{point}: {psycopg.open_now} sessions are left open"
print("the guides are well")
