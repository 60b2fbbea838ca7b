"""A Django management command that runs on every host, and works on one of them. Copy the class to
`app/management/commands/drain_queue.py`; `python django_command.py URL` runs it as it stands."""

# Django comes without types.
# pyright: standard

from __future__ import annotations

import sys
from typing import Any

from django.core.management.base import BaseCommand

from tenure import blocking


class Command(BaseCommand):
    help = "Drains the queue, on one host at a time."

    def add_arguments(self, parser: Any) -> None:
        parser.add_argument("store")
        parser.add_argument("--count", type=int, default=0)

    def handle(self, *args: Any, **options: Any) -> None:
        with blocking.Election("queue", store=options["store"], ttl=6) as election:
            for reign in election.reigns():
                with reign:
                    done = 0
                    while not reign.lost.wait(0.05):
                        # Inside: with tenure.fence.atomic("queue", reign.term): ...
                        self.stdout.write(f"drained as term {reign.term}")
                        done += 1
                        if done == options["count"]:
                            return


if __name__ == "__main__":
    from django.conf import settings
    from django.core.management import call_command

    settings.configure()
    call_command(Command(), *sys.argv[1:])
