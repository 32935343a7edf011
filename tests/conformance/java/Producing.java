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

/** A producer for each call, closed after it. */
final class Producing {
    private final String bootstrap;

    Producing(String bootstrap) {
        this.bootstrap = bootstrap;
    }

    List<Long> produce(JsonNode request) throws Exception {
        Map<String, Object> config = new HashMap<>();
        config.put("bootstrap.servers", bootstrap);
        config.put("compression.type", request.get("codec").asText());
        config.put("acks", request.get("acks").asText());
        config.put("enable.idempotence", request.get("idempotent").asBoolean());
        config.put("linger.ms", 5);
        config.put("request.timeout.ms", 15_000);
        config.put("delivery.timeout.ms", 20_000);
        config.putAll(Driver.options(request));
        String topic = request.get("topic").asText();
        List<Future<RecordMetadata>> sent = new ArrayList<>();
        try (KafkaProducer<byte[], byte[]> producer =
                new KafkaProducer<>(config, new ByteArraySerializer(), new ByteArraySerializer())) {
            for (JsonNode record : request.get("records")) {
                sent.add(producer.send(outgoing(topic, record)));
            }
            producer.flush();
            return offsets(sent);
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
