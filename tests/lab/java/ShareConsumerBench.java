import java.time.Duration;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import org.apache.kafka.clients.consumer.AcknowledgeType;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.ConsumerRecords;
import org.apache.kafka.clients.consumer.KafkaShareConsumer;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;

/**
 * Consumes a number of records as a member of a share group, acknowledges each explicitly, and says on standard output when
 * it began, had its first record, and had its last one acknowledged.
 */
public final class ShareConsumerBench {
    private ShareConsumerBench() {}

    /** Arguments: bootstrap servers, topic, group, number of records, and settings as key=value. */
    public static void main(String[] arguments) {
        long records = Long.parseLong(arguments[3]);
        Map<String, Object> settings = new HashMap<>();
        settings.put("bootstrap.servers", arguments[0]);
        settings.put("group.id", arguments[2]);
        settings.put("key.deserializer", ByteArrayDeserializer.class.getName());
        settings.put("value.deserializer", ByteArrayDeserializer.class.getName());
        settings.put("share.acknowledgement.mode", "explicit");
        for (int at = 4; at < arguments.length; at++) {
            String[] pair = arguments[at].split("=", 2);
            settings.put(pair[0], pair[1]);
        }
        tell("began");
        long count = 0;
        try (KafkaShareConsumer<byte[], byte[]> consumer = new KafkaShareConsumer<>(settings)) {
            consumer.subscribe(List.of(arguments[1]));
            while (count < records) {
                ConsumerRecords<byte[], byte[]> batch = consumer.poll(Duration.ofMillis(500));
                if (count == 0 && batch.count() > 0) {
                    tell("first");
                }
                for (ConsumerRecord<byte[], byte[]> record : batch) {
                    consumer.acknowledge(record, AcknowledgeType.ACCEPT);
                }
                count += batch.count();
            }
            consumer.commitSync();
            tell("done");
        }
    }

    private static void tell(String what) {
        System.out.println(what);
        System.out.flush();
    }
}
