import com.fasterxml.jackson.databind.JsonNode;
import java.util.ArrayList;
import java.util.Base64;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.Future;
import java.util.concurrent.TimeUnit;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.clients.producer.RecordMetadata;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.header.internals.RecordHeader;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/** Producers by number, from their opening until what they sent is answered. */
final class Producing {
    private final String bootstrap;
    private final List<Open> producers = new ArrayList<>();

    Producing(String bootstrap) {
        this.bootstrap = bootstrap;
    }

    private record Open(
        KafkaProducer<byte[], byte[]> producer, String topic, List<Future<RecordMetadata>> sent) { }

    int open(JsonNode request) {
        Map<String, Object> config = new HashMap<>();
        config.put("bootstrap.servers", bootstrap);
        config.put("compression.type", request.get("codec").asText());
        config.put("acks", request.get("acks").asText());
        config.put("enable.idempotence", request.get("idempotent").asBoolean());
        config.put("linger.ms", 5);
        config.put("request.timeout.ms", 15_000);
        config.put("delivery.timeout.ms", 20_000);
        config.putAll(Driver.options(request));
        KafkaProducer<byte[], byte[]> producer =
            new KafkaProducer<>(config, new ByteArraySerializer(), new ByteArraySerializer());
        producers.add(new Open(producer, request.get("topic").asText(), new ArrayList<>()));
        return producers.size() - 1;
    }

    Object send(JsonNode request) {
        Open to = producers.get(request.get("producer").asInt());
        for (JsonNode record : request.get("records")) {
            to.sent.add(to.producer.send(outgoing(to.topic, record)));
        }
        return null;
    }

    List<Long> finish(JsonNode request) throws Exception {
        Open of = producers.get(request.get("producer").asInt());
        try (KafkaProducer<byte[], byte[]> producer = of.producer) {
            producer.flush();
            return offsets(of.sent);
        }
    }

    Object beginTransaction(JsonNode request) {
        Map<String, Object> config = new HashMap<>();
        config.put("bootstrap.servers", bootstrap);
        config.put("transactional.id", request.get("transactional_id").asText());
        try (KafkaProducer<byte[], byte[]> producer =
                new KafkaProducer<>(config, new ByteArraySerializer(), new ByteArraySerializer())) {
            producer.initTransactions();
            producer.beginTransaction();
        }
        return null;
    }

    private static List<Long> offsets(List<Future<RecordMetadata>> sent) throws Exception {
        List<Long> offsets = new ArrayList<>();
        for (Future<RecordMetadata> each : sent) {
            try {
                offsets.add(each.get(30, TimeUnit.SECONDS).offset());
            } catch (ExecutionException failed) {
                throw (Exception) failed.getCause();
            }
        }
        return offsets;
    }

    private static ProducerRecord<byte[], byte[]> outgoing(String topic, JsonNode record) {
        List<Header> headers = new ArrayList<>();
        for (JsonNode pair : record.get("headers")) {
            headers.add(new RecordHeader(pair.get(0).asText(), data(pair.get(1))));
        }
        JsonNode timestamp = record.get("timestamp_ms");
        return new ProducerRecord<>(
            topic,
            record.get("partition").asInt(),
            timestamp.isNull() ? null : timestamp.asLong(),
            data(record.get("key")),
            data(record.get("value")),
            headers);
    }

    private static byte[] data(JsonNode text) {
        return text.isNull() ? null : Base64.getDecoder().decode(text.asText());
    }
}
