"""Tells tracecore when a rank begins and ends a step, over OTLP/HTTP, with no library:

    from training_step import step
    for number, batch in enumerate(loader):
        with step(number):
            train(batch)

A verdict then names the step that it falls into, by trace id and span id. Nothing waits:
two small requests for each step leave in a thread, and are dropped while it is behind, or
while nobody takes them. OTEL_EXPORTER_OTLP_ENDPOINT is one of OTLP over HTTP, not of gRPC.
"""

import contextlib, http.client, json, os, queue, random, threading, time, urllib.request

ENDPOINT = os.environ.get("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:4318").rstrip("/")
JOB = next((v for n in ("JOB_ID", "TORCHELASTIC_RUN_ID", "SLURM_JOB_ID") if (v := os.environ.get(n)) and v != "none"), "")
RANK = next((v for n in ("RANK", "OMPI_COMM_WORLD_RANK", "PMI_RANK", "SLURM_PROCID") if (v := os.environ.get(n))), 0)
WHO = {"gen_ai.training.rank": int(RANK)} | ({"gen_ai.training.job_id": JOB} if JOB else {})
# One trace for the run: the launcher's, where TRACEPARENT names one.
PARENT = os.environ.get("TRACEPARENT", "").split("-")
TRACE, ROOT = (PARENT[1], PARENT[2]) if len(PARENT) == 4 else ("%032x" % random.SystemRandom().randrange(1, 1 << 128), "")
waiting = queue.Queue(maxsize=64)


def send():
    while True:
        path, body = waiting.get()
        with contextlib.suppress(OSError, ValueError, http.client.HTTPException):
            request = urllib.request.Request(ENDPOINT + path, json.dumps(body).encode(), {"Content-Type": "application/json"})
            urllib.request.urlopen(request, timeout=2).close()
        waiting.task_done()


threading.Thread(target=send, daemon=True).start()


def tell(path, kind, scope, item, **more):
    attributes = [{"key": k, "value": {"intValue": str(v)} if isinstance(v, int) else {"stringValue": v}} for k, v in (WHO | more).items()]
    resource = {"attributes": [{"key": "service.name", "value": {"stringValue": os.environ.get("OTEL_SERVICE_NAME", "training")}}]}
    with contextlib.suppress(queue.Full):
        waiting.put_nowait((path, {"resource" + kind: [{"resource": resource, "scope" + kind: [{scope: [item | {"attributes": attributes}]}]}]}))


@contextlib.contextmanager
def step(number):
    ids = {"traceId": TRACE, "spanId": "%016x" % random.SystemRandom().randrange(1, 1 << 64)}
    begin = str(time.time_ns())
    tell("/v1/logs", "Logs", "logRecords", ids | {"eventName": "training.step.begin", "timeUnixNano": begin}, **{"gen_ai.training.step": number})
    try:
        yield
    finally:
        span = ids | {"name": "training.step", "kind": 1, "startTimeUnixNano": begin, "endTimeUnixNano": str(time.time_ns())}
        tell("/v1/traces", "Spans", "spans", span | ({"parentSpanId": ROOT} if ROOT else {}), **{"gen_ai.training.step": number})
