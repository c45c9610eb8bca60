import java.io.IOException;
import java.time.Duration;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Set;
import org.apache.kafka.clients.consumer.AcknowledgeType;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.ConsumerRecords;
import org.apache.kafka.clients.consumer.KafkaShareConsumer;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.TopicIdPartition;
import org.apache.kafka.common.serialization.StringDeserializer;

/**
 * A member of a share group that does one thing until its standard input ends, and takes leave then. Each record is a line on
 * standard output: what was done (and confirmed by the broker), partition, offset, delivery count, value.
 *
 * <p>The one thing: {@code accept} what comes, for ever; {@code release} or {@code hold} what comes first, and nothing more.
 */
public final class ShareMember {
    private static final Duration WAIT = Duration.ofMillis(200);

    private static volatile boolean isOver;

    private ShareMember() {}

    /** Arguments: the one thing, bootstrap servers, topic, group, records at a time. */
    public static void main(String[] arguments) throws InterruptedException {
        Thread watch = new Thread(ShareMember::awaitEnd);
        watch.setDaemon(true);
        watch.start();
        Map<String, Object> settings = new HashMap<>();
        settings.put("bootstrap.servers", arguments[1]);
        settings.put("group.id", arguments[3]);
        settings.put("max.poll.records", arguments[4]);
        settings.put("key.deserializer", StringDeserializer.class.getName());
        settings.put("value.deserializer", StringDeserializer.class.getName());
        settings.put("share.acknowledgement.mode", "explicit");
        String does = arguments[0];
        try (KafkaShareConsumer<String, String> consumer = new KafkaShareConsumer<>(settings)) {
            consumer.subscribe(List.of(arguments[2]));
            boolean goesOn = true;
            while (!isOver) {
                if (!goesOn) {
                    Thread.sleep(WAIT.toMillis());
                    continue;
                }
                ConsumerRecords<String, String> batch = consumer.poll(WAIT);
                switch (does) {
                    case "accept" -> settle(consumer, batch, AcknowledgeType.ACCEPT, "accepted");
                    case "release" -> settle(consumer, batch, AcknowledgeType.RELEASE, "released");
                    default -> batch.forEach(record -> tell("held", record));
                }
                goesOn = does.equals("accept") || batch.isEmpty();
            }
        }
    }

    private static void settle(
            KafkaShareConsumer<String, String> consumer,
            ConsumerRecords<String, String> batch,
            AcknowledgeType type,
            String done) {
        if (batch.isEmpty()) {
            return;
        }
        batch.forEach(record -> consumer.acknowledge(record, type));
        Set<Integer> confirmed = new HashSet<>();
        for (Map.Entry<TopicIdPartition, Optional<KafkaException>> result : consumer.commitSync().entrySet()) {
            if (result.getValue().isEmpty()) {
                confirmed.add(result.getKey().partition());
            }
        }
        batch.forEach(record -> tell(confirmed.contains(record.partition()) ? done : "refused", record));
    }

    private static void tell(String what, ConsumerRecord<String, String> record) {
        short count = record.deliveryCount().orElse((short) 0);
        System.out.println(
                what + " " + record.partition() + " " + record.offset() + " " + count + " " + record.value());
    }

    private static void awaitEnd() {
        try {
            while (System.in.read() >= 0) {
                continue;
            }
        } catch (IOException ended) {
            // As good as its end.
        }
        isOver = true;
    }
}
