"""A worker: takes messages of one flow from a tidegate host, does a pretend job with each, and settles it.

Stubs:  python -m grpc_tools.protoc -I PROTO --python_out=. --grpc_python_out=. tidegate/v1/handoff.proto
"""

import os
import queue
import random
import signal
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import grpc
from tidegate.v1 import handoff_pb2 as pb
from tidegate.v1 import handoff_pb2_grpc as stubs

ADDRESS = os.environ.get("TIDEGATE_ADDRESS", "127.0.0.1:9641")
FLOW = os.environ.get("TIDEGATE_FLOW", "jobs")
NAME = os.environ.get("TIDEGATE_WORKER", "python")
TOKEN = os.environ.get("TIDEGATE_TOKEN")
CREDITS = int(os.environ.get("TIDEGATE_CREDITS", "4"))  # messages at one time
SETTLE_ADDRESS = os.environ.get("TIDEGATE_SETTLE_ADDRESS")  # another host of the fleet, to settle there
TRACE = "TIDEGATE_TRACE" in os.environ  # whether to say what comes and what is settled, with receipts
METADATA = [("authorization", f"Bearer {TOKEN}")] if TOKEN else []
# A message may be larger than the 4 MB that gRPC takes by default, and a host that is gone has to be noticed.
OPTIONS = [("grpc.max_receive_message_length", 64 << 20), ("grpc.keepalive_time_ms", 10_000)]


@dataclass
class Open:
    """A settlement without an answer. From `due` on it is tried past the streams, until its lease ends."""

    settlement: pb.Settlement
    what: str
    due: float
    ends: float


printing = threading.Lock()
lock = threading.Lock()
stopping = threading.Event()
stream = None  # requests of the stream that is open
running = 0  # messages that are being worked on
unsettled = {}  # by receipt


def say(*words):
    with printing:  # or lines of several threads get mixed up
        print(*words, flush=True)


def work(delivery):
    """The pretend job. Says what is to become of the message."""
    time.sleep(0.05)
    if delivery.body == b"reject":
        return {"reject": pb.Reject(reason="it says so itself")}
    if delivery.body == b"defer" and delivery.attempt == 1:
        return {"defer": pb.Defer(delay_ms=1000)}
    return {"accept": pb.Accept()}


def handle(delivery, ends):
    global running
    known_as = f"{delivery.message_id} {delivery.body.decode()} attempt {delivery.attempt}"
    if TRACE:
        say(f"took {known_as} for {delivery.lease_ms} ms by {delivery.receipt}")
    try:
        verdict = {"release": pb.Release()} if stopping.is_set() else work(delivery)
    except Exception as error:  # what this worker cannot do, another may
        say(f"failed {known_as}: {error}")
        verdict = {"release": pb.Release()}
    settlement = pb.Settlement(receipt=delivery.receipt, **verdict)
    what = f"{next(iter(verdict))} {known_as} by …{delivery.receipt[-12:]}"
    with lock:
        running -= 1
        settles_here = stream and not (SETTLE_ADDRESS and "accept" in verdict)
        # A stream answers within 300 s, or it ends.
        due = time.monotonic() + (330 if settles_here else 0)
        unsettled[delivery.receipt] = Open(settlement, what, due, ends)
        if settles_here:
            if TRACE:
                say(f"settles {what}")
            stream.put(pb.SubscribeRequest(settle=pb.Settlements(settlements=[settlement])))


def note(results):
    """Takes answers. Only what is to be tried again stays."""
    for result in results:
        with lock:
            if result.status == pb.STATUS_RETRY_LATER and result.receipt in unsettled:
                unsettled[result.receipt].due = time.monotonic() + 1
            elif one := unsettled.pop(result.receipt, None):
                status = pb.Status.Name(result.status).removeprefix("STATUS_").lower()
                say(status, one.what, result.detail)


def settle_late(stub):
    """Settles what no stream is asked about, or has answered. A receipt is good on any host of the fleet."""
    while True:
        time.sleep(0.2)
        late, now = [], time.monotonic()
        with lock:
            for receipt, one in list(unsettled.items()):
                if one.due <= now <= one.ends and len(late) < 1000:
                    one.due = now + 1
                    late.append(one.settlement)
                    if TRACE:
                        say("settles", one.what)
                elif one.due <= now and one.ends < now:
                    say("unsettled", unsettled.pop(receipt).what)
            if late and stream and SETTLE_ADDRESS:  # or the host that gave them out would still count on them
                receipts = [settlement.receipt for settlement in late if settlement.HasField("accept")]
                stream.put(pb.SubscribeRequest(elsewhere=pb.Elsewhere(receipts=receipts)))
        try:
            if late:
                request = pb.SettleRequest(settlements=late)
                note(stub.Settle(request, metadata=METADATA, timeout=15).results)
        except grpc.RpcError as error:
            say(f"cannot settle {len(late)} now: {error.details()}")


def finish(ended, patience=30):
    """Waits until all is done and answered."""
    give_up_at = time.monotonic() + patience
    while (running or unsettled) and not ended.is_set() and time.monotonic() < give_up_at:
        time.sleep(0.05)


def subscribe(stub, pool):
    """One stream, until it ends. Says whether it was opened."""
    global stream, running
    requests, draining, ended, opened = queue.Queue(), threading.Event(), threading.Event(), False

    def leave():
        while not (stopping.is_set() or draining.is_set() or ended.is_set()):
            time.sleep(0.1)
        requests.put(pb.SubscribeRequest(credits=pb.Credits(messages=0)))  # nothing more
        finish(ended)
        requests.put(None)  # ends the stream: what is not settled goes to others

    requests.put(pb.SubscribeRequest(open=pb.Open(flow=FLOW, worker=NAME, credits=pb.Credits(messages=CREDITS))))
    threading.Thread(target=leave, daemon=True).start()
    try:
        for response in stub.Subscribe(iter(requests.get, None), metadata=METADATA):
            kind = response.WhichOneof("kind")
            if kind == "opened":
                say(f"subscribed at {response.opened.host}")
                with lock:
                    stream, opened = requests, True
            elif kind == "deliveries":
                with lock:
                    running += len(response.deliveries.deliveries)
                for delivery in response.deliveries.deliveries:
                    pool.submit(handle, delivery, time.monotonic() + delivery.lease_ms / 1000)
            elif kind == "settled":
                note(response.settled.results)
            elif kind == "draining":
                draining.set()
    except grpc.RpcError as error:
        say(f"the stream broke: {error.details()}")
    with lock:
        stream = None
        for one in unsettled.values():
            one.due = 0
    ended.set()
    return opened


def main():
    for name in (signal.SIGTERM, signal.SIGINT):
        signal.signal(name, lambda *_: stopping.set())
    failures = 0
    with (
        grpc.insecure_channel(ADDRESS, OPTIONS) as channel,
        grpc.insecure_channel(SETTLE_ADDRESS or ADDRESS, OPTIONS) as settling,
        ThreadPoolExecutor(CREDITS) as pool,
    ):
        stub = stubs.HandoffStub(channel)
        threading.Thread(target=settle_late, args=[stubs.HandoffStub(settling)], daemon=True).start()
        while not stopping.is_set():
            failures = 1 if subscribe(stub, pool) else failures + 1
            stopping.wait(random.uniform(0.5, 1) * min(10, 0.1 * 2**failures))
        finish(threading.Event())
    say("left")


if __name__ == "__main__":
    main()
