import com.fasterxml.jackson.databind.JsonNode;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import java.util.TreeSet;
import java.util.stream.Collectors;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.AlterConfigOp;
import org.apache.kafka.clients.admin.ConfigEntry;
import org.apache.kafka.clients.admin.ConsumerGroupDescription;
import org.apache.kafka.clients.admin.ListOffsetsResult.ListOffsetsResultInfo;
import org.apache.kafka.clients.admin.NewPartitions;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.admin.OffsetSpec;
import org.apache.kafka.clients.admin.ProducerState;
import org.apache.kafka.clients.admin.RecordsToDelete;
import org.apache.kafka.clients.admin.RemoveMembersFromConsumerGroupOptions;
import org.apache.kafka.clients.admin.TopicDescription;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.common.KafkaFuture;
import org.apache.kafka.common.TopicCollection;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.common.config.ConfigResource;

/** The admin client's functions, one a call, with answers that JSON can carry. */
final class Administration {
    static final Object UNKNOWN = new Object();

    private final Admin admin;

    Administration(Admin admin) {
        this.admin = admin;
    }

    Object answer(String call, JsonNode request) throws Exception {
        switch (call) {
            case "create":
                return create(request);
            case "delete":
                admin.deleteTopics(List.of(request.get("topic").asText())).all().get();
                return null;
            case "admin.cluster":
                return cluster();
            case "admin.topics":
                return new TreeSet<>(admin.listTopics().names().get());
            case "admin.describe":
                return described(request);
            case "admin.grow":
                return done(admin.createPartitions(Map.of(
                    request.get("topic").asText(), NewPartitions.increaseTo(request.get("total").asInt()))).all());
            case "admin.configs":
                return configs(request);
            case "admin.set_configs":
                return setConfigs(request);
            case "admin.log_dirs":
                return logDirs();
            default:
                return ofPlace(call, request);
        }
    }

    private Object ofPlace(String call, JsonNode request) throws Exception {
        TopicPartition at = new TopicPartition(request.path("topic").asText(), request.path("partition").asInt());
        switch (call) {
            case "admin.offsets":
                return offsets(at, request.get("at").asText());
            case "admin.delete_records":
                return admin.deleteRecords(Map.of(at, RecordsToDelete.beforeOffset(request.get("before").asLong())))
                    .lowWatermarks().get(at).get().lowWatermark();
            case "admin.producers":
                return admin.describeProducers(List.of(at)).partitionResult(at).get().activeProducers().stream()
                    .map(ProducerState::lastSequence).collect(Collectors.toList());
            default:
                return ofGroup(call, at, request);
        }
    }

    private Object ofGroup(String call, TopicPartition at, JsonNode request) throws Exception {
        String group = request.path("group").asText();
        switch (call) {
            case "admin.groups":
                return admin.listGroups().all().get().stream()
                    .collect(Collectors.toMap(each -> each.groupId(), each -> each.groupState().get().toString()));
            case "admin.group":
                return group(admin.describeConsumerGroups(List.of(group)).describedGroups().get(group).get());
            case "group_offset":
                return groupOffsets(group).get(at.toString());
            case "admin.group_offsets":
                return groupOffsets(group);
            case "admin.set_group_offset":
                return done(admin.alterConsumerGroupOffsets(group, Map.of(at, new OffsetAndMetadata(
                    request.get("offset").asLong(), request.path("metadata").asText("")))).all());
            case "admin.delete_group_offset":
                return done(admin.deleteConsumerGroupOffsets(group, java.util.Set.of(at)).all());
            case "admin.delete_group":
                return done(admin.deleteConsumerGroups(List.of(group)).all());
            case "admin.remove_members":
                return done(admin.removeMembersFromConsumerGroup(
                    group, new RemoveMembersFromConsumerGroupOptions()).all());
            default:
                return UNKNOWN;
        }
    }

    private static Object done(KafkaFuture<?> future) throws Exception {
        future.get();
        return null;
    }

    private Object create(JsonNode request) throws Exception {
        NewTopic topic = new NewTopic(request.get("topic").asText(), request.get("partitions").asInt(), (short) 1);
        topic.configs(Driver.textsByName(request.get("configs")));
        return done(admin.createTopics(List.of(topic)).all());
    }

    private Object cluster() throws Exception {
        var cluster = admin.describeCluster();
        return Map.of(
            "id", cluster.clusterId().get(),
            "controller", cluster.controller().get().id(),
            "nodes", cluster.nodes().get().stream()
                .map(node -> node.id() + "@" + node.host() + ":" + node.port()).collect(Collectors.toList()));
    }

    private Object described(JsonNode request) throws Exception {
        String name = request.get("topic").asText();
        TopicDescription topic = admin.describeTopics(List.of(name)).allTopicNames().get().get(name);
        Uuid id = topic.topicId();
        TopicDescription same = admin.describeTopics(TopicCollection.ofTopicIds(List.of(id))).allTopicIds().get().get(id);
        return Map.of(
            "name", topic.name(),
            "name_by_id", same.name(),
            "internal", topic.isInternal(),
            "leaders", topic.partitions().stream().map(each -> each.leader().id()).collect(Collectors.toList()),
            "isr", topic.partitions().stream().map(each -> each.isr().size()).collect(Collectors.toList()));
    }

    private Object configs(JsonNode request) throws Exception {
        ConfigResource resource = resource(request);
        Map<String, String> values = new TreeMap<>();
        for (ConfigEntry entry : admin.describeConfigs(List.of(resource)).all().get().get(resource).entries()) {
            values.put(entry.name(), entry.value() + " " + entry.source());
        }
        return values;
    }

    private Object setConfigs(JsonNode request) throws Exception {
        List<AlterConfigOp> changes = new ArrayList<>();
        Driver.textsByName(request.get("set")).forEach((name, value) ->
            changes.add(new AlterConfigOp(new ConfigEntry(name, value), AlterConfigOp.OpType.SET)));
        Driver.texts(request.get("removed")).forEach(name ->
            changes.add(new AlterConfigOp(new ConfigEntry(name, ""), AlterConfigOp.OpType.DELETE)));
        return done(admin.incrementalAlterConfigs(Map.of(resource(request), changes)).all());
    }

    private static ConfigResource resource(JsonNode request) {
        return new ConfigResource(
            ConfigResource.Type.valueOf(request.get("kind").asText()), request.get("name").asText());
    }

    private Object offsets(TopicPartition at, String where) throws Exception {
        OffsetSpec spec = switch (where) {
            case "earliest" -> OffsetSpec.earliest();
            case "latest" -> OffsetSpec.latest();
            case "max-timestamp" -> OffsetSpec.maxTimestamp();
            default -> OffsetSpec.forTimestamp(Long.parseLong(where));
        };
        ListOffsetsResultInfo found = admin.listOffsets(Map.of(at, spec)).partitionResult(at).get();
        return List.of(found.offset(), found.timestamp());
    }

    private Object logDirs() throws Exception {
        Map<String, Long> sizes = new HashMap<>();
        for (int node : List.of(admin.describeCluster().controller().get().id())) {
            admin.describeLogDirs(List.of(node)).allDescriptions().get().get(node).values().forEach(folder ->
                folder.replicaInfos().forEach((at, about) -> sizes.put(at.toString(), about.size())));
        }
        return sizes;
    }

    private static Object group(ConsumerGroupDescription group) {
        return Map.of(
            "state", group.groupState().toString(),
            "assignor", group.partitionAssignor(),
            "members", group.members().stream()
                .map(member -> member.assignment().topicPartitions().stream()
                    .map(TopicPartition::partition).sorted().collect(Collectors.toList()))
                .collect(Collectors.toList()));
    }

    private Map<String, Object> groupOffsets(String group) throws Exception {
        Map<String, Object> rows = new TreeMap<>();
        admin.listConsumerGroupOffsets(group).partitionsToOffsetAndMetadata().get().forEach((at, place) ->
            rows.put(at.toString(), List.of(place.offset(), place.metadata())));
        return rows;
    }
}
