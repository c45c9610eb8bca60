import static io.grpc.Metadata.ASCII_STRING_MARSHALLER;
import static tidegate.v1.HandoffOuterClass.*;

import io.grpc.Channel;
import io.grpc.Grpc;
import io.grpc.InsecureChannelCredentials;
import io.grpc.Metadata;
import io.grpc.StatusRuntimeException;
import io.grpc.stub.MetadataUtils;
import io.grpc.stub.StreamObserver;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.ThreadLocalRandom;
import java.util.concurrent.TimeUnit;
import tidegate.v1.HandoffGrpc;

/** Takes messages of one flow from a tidegate host, does a pretend job with each, and settles it. */
public final class Worker {
  private static final int CREDITS = Integer.parseInt(setting("CREDITS", "4")); // messages at one time
  private static final String SETTLE_ADDRESS = setting("SETTLE_ADDRESS", ""); // another host, to settle there
  private static final boolean TRACE = System.getenv("TIDEGATE_TRACE") != null; // says what comes and goes

  /** A settlement without an answer. From `due` on it is tried past the streams, until its lease ends. */
  private static final class Unsettled {
    Settlement settlement;
    String what;
    long due;
    long ends;

    void say() {
      if (TRACE) System.out.println("settles " + what);
    }
  }

  private final Channel channel;
  private final Channel settling;
  private final ExecutorService pool = Executors.newFixedThreadPool(CREDITS);
  private final CountDownLatch stopping = new CountDownLatch(1);
  // What follows is guarded by `this`.
  private final Map<String, Unsettled> unsettled = new HashMap<>(); // by receipt
  private StreamObserver<SubscribeRequest> stream; // the one that is open
  private int running; // messages that are being worked on

  private Worker(Channel channel, Channel settling) {
    this.channel = channel;
    this.settling = settling;
  }

  /** The pretend job. Says what is to become of the message. */
  private static Settlement.Builder work(Delivery delivery) throws InterruptedException {
    Thread.sleep(50);
    String body = delivery.getBody().toStringUtf8();
    if (body.equals("reject")) {
      return Settlement.newBuilder().setReject(Reject.newBuilder().setReason("it says so itself"));
    } else if (body.equals("defer") && delivery.getAttempt() == 1) {
      return Settlement.newBuilder().setDefer(Defer.newBuilder().setDelayMs(1000));
    }
    return Settlement.newBuilder().setAccept(Accept.getDefaultInstance());
  }

  private void handle(Delivery delivery, long ends) {
    String knownAs =
        delivery.getMessageId() + " " + delivery.getBody().toStringUtf8() + " attempt " + delivery.getAttempt();
    if (TRACE) {
      System.out.println("took " + knownAs + " for " + delivery.getLeaseMs() + " ms by " + delivery.getReceipt());
    }
    Settlement.Builder verdict = Settlement.newBuilder().setRelease(Release.getDefaultInstance());
    try {
      verdict = stopping.getCount() == 0 ? verdict : work(delivery);
    } catch (Exception error) { // what this worker cannot do, another may
      System.out.println("failed " + knownAs + ": " + error);
    }
    Unsettled one = new Unsettled();
    one.ends = ends;
    one.settlement = verdict.setReceipt(delivery.getReceipt()).build();
    String end = delivery.getReceipt().substring(Math.max(0, delivery.getReceipt().length() - 12));
    one.what = verdict.getVerdictCase().name().toLowerCase() + " " + knownAs + " by …" + end;
    synchronized (this) {
      running--;
      unsettled.put(delivery.getReceipt(), one);
      if (stream != null && (SETTLE_ADDRESS.isEmpty() || !one.settlement.hasAccept())) {
        one.due = System.currentTimeMillis() + 330_000; // a stream answers within 300 s, or it ends
        one.say();
        Settlements settlements = Settlements.newBuilder().addSettlements(one.settlement).build();
        stream.onNext(SubscribeRequest.newBuilder().setSettle(settlements).build());
      }
    }
  }

  /** Takes answers. Only what is to be tried again stays. */
  private synchronized void note(List<SettleResult> results) {
    for (SettleResult result : results) {
      Unsettled one = unsettled.get(result.getReceipt());
      if (one != null && result.getStatus() == Status.STATUS_RETRY_LATER) {
        one.due = System.currentTimeMillis() + 1000;
      } else if (one != null) {
        unsettled.remove(result.getReceipt());
        String status = result.getStatus().name().replace("STATUS_", "").toLowerCase();
        System.out.println(status + " " + one.what + " " + result.getDetail());
      }
    }
  }

  /** Settles what no stream is asked about, or has answered. A receipt is good on any host of the fleet. */
  private void settleLate() {
    while (!Thread.interrupted()) {
      SettleRequest.Builder late = SettleRequest.newBuilder();
      synchronized (this) {
        long now = System.currentTimeMillis();
        for (Unsettled one : List.copyOf(unsettled.values())) {
          if (one.due > now || late.getSettlementsCount() == 1000) continue;
          one.due = now + 1000;
          if (one.ends > now) {
            late.addSettlements(one.settlement);
            one.say();
          } else {
            System.out.println("unsettled " + unsettled.remove(one.settlement.getReceipt()).what);
          }
        }
        if (late.getSettlementsCount() > 0 && stream != null && !SETTLE_ADDRESS.isEmpty()) {
          Elsewhere.Builder elsewhere = Elsewhere.newBuilder(); // or the host would still count on them
          late.getSettlementsList().stream().filter(Settlement::hasAccept).forEach(
              settlement -> elsewhere.addReceipts(settlement.getReceipt()));
          stream.onNext(SubscribeRequest.newBuilder().setElsewhere(elsewhere).build());
        }
      }
      try {
        if (late.getSettlementsCount() > 0) {
          var host = HandoffGrpc.newBlockingStub(settling).withDeadlineAfter(15, TimeUnit.SECONDS);
          note(host.settle(late.build()).getResultsList());
        }
        Thread.sleep(200);
      } catch (StatusRuntimeException error) {
        System.out.println("cannot settle " + late.getSettlementsCount() + " now: " + error.getMessage());
      } catch (InterruptedException end) {
        return;
      }
    }
  }

  /** Waits until all is done and answered. */
  private void finish(CountDownLatch ended) throws InterruptedException {
    for (long end = System.currentTimeMillis() + 30_000; System.currentTimeMillis() < end; ) {
      synchronized (this) {
        if (running == 0 && unsettled.isEmpty()) return;
      }
      if (ended.await(50, TimeUnit.MILLISECONDS)) return;
    }
  }

  /** One stream, until it ends. Says whether it was opened. */
  private boolean subscribe(String flow, String name) throws InterruptedException {
    CountDownLatch opened = new CountDownLatch(1);
    CountDownLatch leaving = new CountDownLatch(1);
    CountDownLatch ended = new CountDownLatch(1);
    Credits credits = Credits.newBuilder().setMessages(CREDITS).build();
    var responses = new StreamObserver<SubscribeResponse>() {
      StreamObserver<SubscribeRequest> requests;

      @Override
      public void onNext(SubscribeResponse response) {
        switch (response.getKindCase()) {
          case OPENED -> {
            System.out.println("subscribed at " + response.getOpened().getHost());
            opened.countDown();
            synchronized (Worker.this) {
              stream = requests;
            }
          }
          case DELIVERIES -> {
            List<Delivery> deliveries = response.getDeliveries().getDeliveriesList();
            synchronized (Worker.this) {
              running += deliveries.size();
            }
            long now = System.currentTimeMillis();
            deliveries.forEach(one -> pool.execute(() -> handle(one, now + one.getLeaseMs())));
          }
          case SETTLED -> note(response.getSettled().getResultsList());
          case DRAINING -> leaving.countDown();
          default -> {}
        }
      }

      @Override
      public void onError(Throwable error) {
        System.out.println("the stream broke: " + error.getMessage());
        onCompleted();
      }

      @Override
      public void onCompleted() {
        synchronized (Worker.this) {
          stream = null;
          unsettled.values().forEach(one -> one.due = 0);
        }
        ended.countDown();
      }
    };
    synchronized (this) {
      responses.requests = HandoffGrpc.newStub(channel).subscribe(responses);
      var open = Open.newBuilder().setFlow(flow).setWorker(name).setCredits(credits);
      responses.requests.onNext(SubscribeRequest.newBuilder().setOpen(open).build());
    }
    while (stopping.getCount() > 0 && leaving.getCount() > 0 && !ended.await(100, TimeUnit.MILLISECONDS)) {}
    if (ended.getCount() > 0) {
      synchronized (this) { // nothing more
        responses.requests.onNext(SubscribeRequest.newBuilder().setCredits(Credits.getDefaultInstance()).build());
      }
      finish(ended);
      synchronized (this) { // what is not settled goes to others
        responses.requests.onCompleted();
      }
      ended.await(5, TimeUnit.SECONDS);
    }
    return opened.getCount() == 0;
  }

  private static long backoff(int failures) {
    long wait = Math.min(10_000, 100L << Math.min(failures, 10));
    return wait / 2 + ThreadLocalRandom.current().nextLong(wait / 2);
  }

  private static Channel connect(String address, Metadata metadata) {
    return Grpc.newChannelBuilder(address, InsecureChannelCredentials.create())
        .intercept(MetadataUtils.newAttachHeadersInterceptor(metadata))
        // A message may be larger than the 4 MB that gRPC takes by default, and a host that is gone has to be noticed.
        .maxInboundMessageSize(64 << 20)
        .keepAliveTime(10, TimeUnit.SECONDS)
        .build();
  }

  private static String setting(String name, String otherwise) {
    return Optional.ofNullable(System.getenv("TIDEGATE_" + name)).orElse(otherwise);
  }

  public static void main(String[] arguments) throws InterruptedException {
    Metadata metadata = new Metadata();
    if (System.getenv("TIDEGATE_TOKEN") != null) {
      var key = Metadata.Key.of("authorization", ASCII_STRING_MARSHALLER);
      metadata.put(key, "Bearer " + System.getenv("TIDEGATE_TOKEN"));
    }
    var channel = connect(setting("ADDRESS", "127.0.0.1:9641"), metadata);
    Worker worker = new Worker(channel, SETTLE_ADDRESS.isEmpty() ? channel : connect(SETTLE_ADDRESS, metadata));
    Thread main = Thread.currentThread();
    Runtime.getRuntime().addShutdownHook(new Thread(() -> {
      worker.stopping.countDown();
      try {
        main.join(60_000);
      } catch (InterruptedException end) {
        Thread.currentThread().interrupt();
      }
      Runtime.getRuntime().halt(0); // or the signal would be the exit code
    }));
    Thread settling = new Thread(worker::settleLate);
    settling.setDaemon(true);
    settling.start();
    for (int failures = 0; worker.stopping.getCount() > 0; ) {
      boolean opened = worker.subscribe(setting("FLOW", "jobs"), setting("WORKER", "java"));
      failures = opened ? 1 : failures + 1;
      worker.stopping.await(backoff(failures), TimeUnit.MILLISECONDS);
    }
    worker.finish(new CountDownLatch(1));
    System.out.println("left");
  }
}
