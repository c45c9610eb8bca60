import java.lang.management.ManagementFactory;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Collections;
import java.util.List;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.atomic.AtomicLong;
import org.apache.rocketmq.client.apis.ClientConfiguration;
import org.apache.rocketmq.client.apis.ClientServiceProvider;
import org.apache.rocketmq.client.apis.consumer.ConsumeResult;
import org.apache.rocketmq.client.apis.consumer.FilterExpression;
import org.apache.rocketmq.client.apis.consumer.SimpleConsumer;
import org.apache.rocketmq.client.apis.message.MessageView;

/**
 * Consumes and acknowledges a backlog as fast as the public client can, doing nothing else with a message.
 *
 * <p>Arguments: ENDPOINT lite-push|simple TOPIC GROUP MESSAGES THREADS. Ends when that many messages were consumed, or
 * when none came for a while, and prints one JSON object.
 */
public final class ConsumerBench {
    /** Without a subscribeLite call the client first tells the broker of its wildcard group after up to 45 s. */
    private static final Duration FIRST_MESSAGE_WITHIN = Duration.ofSeconds(120);
    /** Longer than a lease below, so that a message whose acknowledgement got lost is still counted. */
    private static final Duration QUIET_AT_THE_END = Duration.ofSeconds(40);
    private static final Duration LEASE = Duration.ofSeconds(30);
    private static final Duration POLL = Duration.ofSeconds(5);
    /** The most that a proxy gives. */
    private static final int BATCH = 32;

    private final AtomicLong received = new AtomicLong();
    private final AtomicLong firstNanos = new AtomicLong();
    private final AtomicLong lastNanos = new AtomicLong();
    private final AtomicLong failures = new AtomicLong();

    private ConsumerBench() {}

    public static void main(String[] arguments) throws Exception {
        String endpoint = arguments[0];
        String mode = arguments[1];
        String topic = arguments[2];
        String group = arguments[3];
        long messages = Long.parseLong(arguments[4]);
        int threads = Integer.parseInt(arguments[5]);
        ConsumerBench bench = new ConsumerBench();
        ClientConfiguration configuration =
                ClientConfiguration.newBuilder().setEndpoints(endpoint).enableSsl(false).build();
        long startedNanos = System.nanoTime();
        if (mode.equals("lite-push")) {
            bench.startLitePush(configuration, topic, group, threads);
        } else if (mode.equals("simple")) {
            bench.startSimple(configuration, topic, group, threads);
        } else {
            throw new IllegalArgumentException("mode is lite-push or simple, not " + mode);
        }
        bench.waitFor(messages, startedNanos);
        System.out.println(bench.report(startedNanos));
        System.out.flush();
        // A polite shutdown of the client takes seconds that are nobody's business here.
        Runtime.getRuntime().halt(0);
    }

    /** A wildcard group needs no subscription to single lite topics. */
    private void startLitePush(ClientConfiguration configuration, String topic, String group, int threads)
            throws Exception {
        ClientServiceProvider.loadService()
                .newLitePushConsumerBuilder()
                .setClientConfiguration(configuration)
                .setConsumerGroup(group)
                .bindTopic(topic)
                .setConsumptionThreadCount(threads)
                .setMessageListener(view -> {
                    count(1);
                    return ConsumeResult.SUCCESS;
                })
                .build();
    }

    /** Acknowledges a batch at once and waits for all of it: the fastest way that the client offers. */
    private void startSimple(ClientConfiguration configuration, String topic, String group, int threads)
            throws Exception {
        SimpleConsumer consumer = ClientServiceProvider.loadService()
                .newSimpleConsumerBuilder()
                .setClientConfiguration(configuration)
                .setConsumerGroup(group)
                .setAwaitDuration(POLL)
                .setSubscriptionExpressions(Collections.singletonMap(topic, FilterExpression.SUB_ALL))
                .build();
        for (int index = 0; index < threads; index++) {
            Thread worker = new Thread(() -> consumeForever(consumer), "worker-" + index);
            worker.setDaemon(true);
            worker.start();
        }
    }

    private void consumeForever(SimpleConsumer consumer) {
        while (true) {
            try {
                List<CompletableFuture<Void>> acknowledgements = new ArrayList<>();
                for (MessageView view : consumer.receive(BATCH, LEASE)) {
                    acknowledgements.add(consumer.ackAsync(view));
                }
                for (CompletableFuture<Void> acknowledgement : acknowledgements) {
                    acknowledgement.get();
                }
                if (!acknowledgements.isEmpty()) {
                    count(acknowledgements.size());
                }
            } catch (Exception failure) {
                failures.incrementAndGet();
            }
        }
    }

    private void count(int messages) {
        long now = System.nanoTime();
        firstNanos.compareAndSet(0, now);
        lastNanos.set(now);
        received.addAndGet(messages);
    }

    private void waitFor(long messages, long startedNanos) throws InterruptedException {
        while (received.get() < messages) {
            long now = System.nanoTime();
            long first = firstNanos.get();
            boolean silent = first == 0
                    ? now - startedNanos > FIRST_MESSAGE_WITHIN.toNanos()
                    : now - lastNanos.get() > QUIET_AT_THE_END.toNanos();
            if (silent) {
                return;
            }
            Thread.sleep(10);
        }
        // The push consumer acknowledges after the listener returns.
        Thread.sleep(2_000);
    }

    private String report(long startedNanos) throws Exception {
        com.sun.management.OperatingSystemMXBean system =
                (com.sun.management.OperatingSystemMXBean) ManagementFactory.getOperatingSystemMXBean();
        return String.format(
                "{\"received\":%d,\"failures\":%d,\"first_after_seconds\":%.3f,\"seconds\":%.3f,"
                        + "\"cpu_seconds\":%.2f,\"resident_peak_bytes\":%d}",
                received.get(),
                failures.get(),
                (firstNanos.get() - startedNanos) / 1e9,
                (lastNanos.get() - firstNanos.get()) / 1e9,
                system.getProcessCpuTime() / 1e9,
                residentPeakBytes());
    }

    private static long residentPeakBytes() throws Exception {
        for (String line : Files.readAllLines(Path.of("/proc/self/status"))) {
            if (line.startsWith("VmHWM:")) {
                return Long.parseLong(line.replaceAll("[^0-9]", "")) * 1024;
            }
        }
        return 0;
    }
}
