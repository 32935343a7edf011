import com.fasterxml.jackson.databind.JsonNode;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Base64;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.stream.Collectors;
import org.apache.kafka.clients.consumer.CloseOptions;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.consumer.OffsetAndTimestamp;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.record.TimestampType;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;

/** Consumers by number: those with partitions of their own choice, and members of groups. */
final class Reading {
    private static final Map<String, String> ASSIGNORS = Map.of(
        "range", "org.apache.kafka.clients.consumer.RangeAssignor",
        "roundrobin", "org.apache.kafka.clients.consumer.RoundRobinAssignor",
        "sticky", "org.apache.kafka.clients.consumer.StickyAssignor",
        "cooperative-sticky", "org.apache.kafka.clients.consumer.CooperativeStickyAssignor");

    private final String bootstrap;
    private final List<Reader> readers = new ArrayList<>();

    Reading(String bootstrap) {
        this.bootstrap = bootstrap;
    }

    private record Reader(KafkaConsumer<byte[], byte[]> consumer, String topic) {
        TopicPartition at(int partition) {
            return new TopicPartition(topic, partition);
        }

        List<TopicPartition> at(JsonNode partitions) {
            return Driver.numbers(partitions).stream().map(this::at).collect(Collectors.toList());
        }
    }

    Object answer(String call, JsonNode request) {
        switch (call) {
            case "reader":
                return reader(request);
            case "member":
                return member(request);
            default:
                Reader reader = readers.get(request.get("reader").asInt());
                return request.has("partition")
                    ? ofPartition(call, reader, reader.at(request.get("partition").asInt()), request)
                    : ofReader(call, reader, request);
        }
    }

    private static Object ofReader(String call, Reader reader, JsonNode request) {
        KafkaConsumer<byte[], byte[]> consumer = reader.consumer;
        switch (call) {
            case "poll":
                return poll(consumer, request.get("wait_ms").asInt());
            case "assigned":
                return consumer.assignment().stream().map(TopicPartition::partition).collect(Collectors.toList());
            case "pause":
                consumer.pause(reader.at(request.get("partitions")));
                return null;
            case "resume":
                consumer.resume(reader.at(request.get("partitions")));
                return null;
            case "commit":
                consumer.commitSync();
                return null;
            case "commit_async":
                consumer.commitAsync();
                return null;
            case "close":
                // A fetch that still waits is not waited for, unless a group is to be told.
                Duration patience = Duration.ofSeconds(consumer.groupMetadata().memberId().isEmpty() ? 0 : 30);
                consumer.close(CloseOptions.timeout(patience));
                return null;
            default:
                throw new IllegalArgumentException(call);
        }
    }

    private static Object ofPartition(String call, Reader reader, TopicPartition at, JsonNode request) {
        KafkaConsumer<byte[], byte[]> consumer = reader.consumer;
        switch (call) {
            case "seek":
                consumer.seek(at, request.get("offset").asLong());
                return null;
            case "position":
                return consumer.position(at);
            case "commit_offset":
                consumer.commitSync(Map.of(at, new OffsetAndMetadata(
                    request.get("offset").asLong(), request.get("metadata").asText())));
                return null;
            case "committed":
                OffsetAndMetadata found = consumer.committed(Set.of(at)).get(at);
                return found == null ? null : List.of(found.offset(), found.metadata());
            case "offset_at":
                OffsetAndTimestamp place =
                    consumer.offsetsForTimes(Map.of(at, request.get("timestamp_ms").asLong())).get(at);
                return place == null ? null : place.offset();
            case "bounds":
                return List.of(
                    consumer.beginningOffsets(List.of(at)).get(at), consumer.endOffsets(List.of(at)).get(at));
            default:
                throw new IllegalArgumentException(call);
        }
    }

    private int reader(JsonNode request) {
        Map<String, Object> config = new HashMap<>();
        config.put("group.id", "java-reader-" + readers.size());
        Reader reader = new Reader(consumer(config, request), request.get("topic").asText());
        List<TopicPartition> places = reader.at(request.get("partitions"));
        reader.consumer.assign(places);
        places.forEach(at -> reader.consumer.seek(at, request.get("offset").asLong()));
        readers.add(reader);
        return readers.size() - 1;
    }

    private int member(JsonNode request) {
        Map<String, Object> config = new HashMap<>();
        config.put("group.id", request.get("group").asText());
        // In the newer protocol these are the broker's affair.
        if (!"consumer".equals(Driver.options(request).get("group.protocol"))) {
            config.put("partition.assignment.strategy", ASSIGNORS.get(request.get("assignor").asText()));
            config.put("session.timeout.ms", request.get("session_ms").asInt());
            config.put("heartbeat.interval.ms", 200);
        }
        if (!request.get("instance").isNull()) {
            config.put("group.instance.id", request.get("instance").asText());
        }
        Reader reader = new Reader(consumer(config, request), request.get("topic").asText());
        reader.consumer.subscribe(List.of(reader.topic));
        readers.add(reader);
        return readers.size() - 1;
    }

    private KafkaConsumer<byte[], byte[]> consumer(Map<String, Object> config, JsonNode request) {
        config.put("bootstrap.servers", bootstrap);
        config.put("auto.offset.reset", "earliest");
        config.put("enable.auto.commit", false);
        config.put("fetch.max.wait.ms", 200);
        config.put("max.poll.records", 5_000);
        config.put("default.api.timeout.ms", 30_000);
        config.putAll(Driver.options(request));
        return new KafkaConsumer<>(config, new ByteArrayDeserializer(), new ByteArrayDeserializer());
    }

    private static List<Map<String, Object>> poll(KafkaConsumer<byte[], byte[]> consumer, int waitMs) {
        List<Map<String, Object>> rows = new ArrayList<>();
        for (ConsumerRecord<byte[], byte[]> record : consumer.poll(Duration.ofMillis(waitMs))) {
            rows.add(incoming(record));
        }
        return rows;
    }

    private static Map<String, Object> incoming(ConsumerRecord<byte[], byte[]> record) {
        List<List<String>> headers = new ArrayList<>();
        for (Header header : record.headers()) {
            List<String> pair = new ArrayList<>();
            pair.add(header.key());
            pair.add(text(header.value()));
            headers.add(pair);
        }
        Map<String, Object> row = new HashMap<>();
        row.put("partition", record.partition());
        row.put("offset", record.offset());
        row.put("key", text(record.key()));
        row.put("value", text(record.value()));
        row.put("headers", headers);
        row.put("timestamp_ms", record.timestamp());
        row.put("log_append_time", record.timestampType() == TimestampType.LOG_APPEND_TIME);
        return row;
    }

    private static String text(byte[] data) {
        return data == null ? null : Base64.getEncoder().encodeToString(data);
    }

    void close() {
        readers.forEach(reader -> reader.consumer.close(CloseOptions.timeout(Duration.ZERO)));
    }
}
