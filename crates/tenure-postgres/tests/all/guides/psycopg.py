"""Stands in for the driver: counts what is open, and fails where it is told to."""

failing = set()
open_now = 0


class Error(Exception):
    pass


class Connection:
    def __init__(self):
        global open_now
        open_now += 1
        self.closed = False

    def execute(self, sql, values=()):
        for part in failing:
            if part in sql:
                raise Error(part)
        return Answer(sql)

    def close(self):
        global open_now
        if not self.closed:
            self.closed, open_now = True, open_now - 1

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()


class Answer:
    def __init__(self, sql):
        self.sql = sql

    def fetchone(self):
        if "term FROM" in self.sql:
            return None if "taken over" in failing else (7,)
        return (True,)


def connect(url, **options):
    if "connect" in failing:
        raise Error("connect")
    return Connection()
