"""A member of a share group that does one thing until its standard input ends, and takes leave then.

Each record is a line on standard output: what was done (and confirmed by the broker), partition, offset, delivery count,
value. The one thing: `accept` what comes, for ever; `release` or `hold` what comes first, and nothing more.

Arguments: the one thing, bootstrap servers, topic, group, records at a time.
"""

import sys
import threading
import time

from confluent_kafka import AcknowledgeType, ShareConsumer

WAIT = 0.2
COMMIT_WAIT = 30.0


def main():
    does, servers, topic, group, records = sys.argv[1:]
    over = threading.Event()
    threading.Thread(target=lambda: (sys.stdin.read(), over.set()), daemon=True).start()
    consumer = ShareConsumer(
        {
            "bootstrap.servers": servers,
            "group.id": group,
            "max.poll.records": int(records),
            "share.acknowledgement.mode": "explicit",
        }
    )
    consumer.subscribe([topic])
    goes_on = True
    while not over.is_set():
        if not goes_on:
            time.sleep(WAIT)
            continue
        batch = []
        for message in consumer.poll(WAIT):
            if message.error() is None:
                batch.append(message)
            else:
                print(message.error(), file=sys.stderr, flush=True)
        if does == "accept":
            settle(consumer, batch, AcknowledgeType.ACCEPT, "accepted")
        elif does == "release":
            settle(consumer, batch, AcknowledgeType.RELEASE, "released")
        else:
            tell((("held", message) for message in batch))
        goes_on = does == "accept" or not batch
    consumer.close()


def settle(consumer, batch, kind, done):
    if not batch:
        return
    for message in batch:
        consumer.acknowledge(message, kind)
    results = consumer.commit_sync(COMMIT_WAIT)
    confirmed = {of.partition for of, error in results.items() if error is None}
    tell((done if message.partition() in confirmed else "refused", message) for message in batch)


def tell(lines):
    for what, message in lines:
        value = message.value().decode()
        print(what, message.partition(), message.offset(), message.delivery_count(), value)
    sys.stdout.flush()


if __name__ == "__main__":
    main()
