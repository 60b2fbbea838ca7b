"""A Celery app whose tasks are only sent, and noted by the transport."""

# Celery comes without types.
# pyright: standard

from __future__ import annotations

import os

from celery import Celery

app = Celery("beat_app", broker=f"filesystem://{os.environ['BEAT_DIRECTORY']}")
app.conf.broker_transport_options = {
    "data_folder_in": os.environ["BEAT_DIRECTORY"],
    "data_folder_out": os.environ["BEAT_DIRECTORY"],
    # Otherwise it is a directory beside the program.
    "control_folder": f"{os.environ['BEAT_DIRECTORY']}/control",
}
app.conf.beat_scheduler = "tenure.celery:Scheduler"
app.conf.tenure_store = os.environ["TENURE_STORE"]
app.conf.tenure_ttl = 6
app.conf.beat_schedule = {"report": {"task": "report", "schedule": 0.5}}
