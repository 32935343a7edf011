import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.util.List;
import java.util.Map;
import org.apache.kafka.clients.admin.Admin;

/** Kafka's Java clients and tools, driven by JSON lines: java Driver HOST:PORT. */
public final class Driver {
    private static final ObjectMapper JSON = new ObjectMapper();

    private final Admin admin;
    private final Producing producing;
    private final Reading reading;
    private final Administration administration;

    private Driver(String bootstrap) {
        admin = Admin.create(Map.of("bootstrap.servers", bootstrap));
        producing = new Producing(bootstrap);
        reading = new Reading(bootstrap);
        administration = new Administration(admin);
    }

    private Object answer(JsonNode request) throws Exception {
        String call = request.get("call").asText();
        switch (call) {
            case "producer":
                return producing.open(request);
            case "send":
                return producing.send(request);
            case "finish":
                return producing.finish(request);
            case "begin_transaction":
                return producing.beginTransaction(request);
            case "tool":
                return Tools.run(request);
            default:
                Object found = administration.answer(call, request);
                return found == Administration.UNKNOWN ? reading.answer(call, request) : found;
        }
    }

    private ObjectNode answered(String line) throws Exception {
        ObjectNode answer = JSON.createObjectNode();
        try {
            answer.set("result", JSON.valueToTree(answer(JSON.readTree(line))));
        } catch (Exception error) {
            StringBuilder said = new StringBuilder();
            for (Throwable each = error; each != null; each = each.getCause()) {
                said.append(each.getClass().getSimpleName()).append(": ").append(each.getMessage()).append("; ");
            }
            answer.put("error", said.toString());
        }
        return answer;
    }

    public static void main(String[] arguments) throws Exception {
        PrintStream answers = System.out;
        Driver driver = new Driver(arguments[0]);
        BufferedReader requests =
            new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = requests.readLine(); line != null; line = requests.readLine()) {
            answers.write((driver.answered(line) + "\n").getBytes(StandardCharsets.UTF_8));
            answers.flush();
        }
        driver.reading.close();
        driver.admin.close();
        Runtime.getRuntime().halt(0);
    }

    static Map<String, Object> options(JsonNode request) {
        return dotted(JSON.convertValue(request.path("options"), Map.class));
    }

    private static Map<String, Object> dotted(Map<?, ?> options) {
        Map<String, Object> named = new java.util.HashMap<>();
        if (options != null) {
            options.forEach((name, value) -> named.put(name.toString().replace('_', '.'), value));
        }
        return named;
    }

    static List<Integer> numbers(JsonNode list) {
        return JSON.convertValue(list, JSON.getTypeFactory().constructCollectionType(List.class, Integer.class));
    }

    static List<String> texts(JsonNode list) {
        return JSON.convertValue(list, JSON.getTypeFactory().constructCollectionType(List.class, String.class));
    }

    static Map<String, String> textsByName(JsonNode map) {
        return JSON.convertValue(map, JSON.getTypeFactory().constructMapType(Map.class, String.class, String.class));
    }
}
