import com.fasterxml.jackson.databind.JsonNode;
import java.io.ByteArrayInputStream;
import java.io.ByteArrayOutputStream;
import java.io.InputStream;
import java.io.PrintStream;
import java.lang.reflect.Field;
import java.lang.reflect.InvocationTargetException;
import java.nio.charset.StandardCharsets;
import java.util.Map;
import org.apache.kafka.common.utils.Exit;

/** Kafka's command-line tools by their main classes, in this process: a Java machine takes seconds to start. */
final class Tools {
    private static final class Ended extends RuntimeException {
        private static final long serialVersionUID = 1;
    }

    private final ByteArrayOutputStream out = new ByteArrayOutputStream();
    private final ByteArrayOutputStream err = new ByteArrayOutputStream();
    private Map<String, Object> ended;

    private Tools() { }

    static Map<String, Object> run(JsonNode request) throws Exception {
        PrintStream out = System.out;
        PrintStream err = System.err;
        InputStream in = System.in;
        Tools tool = new Tools();
        System.setOut(new PrintStream(tool.out, true, StandardCharsets.UTF_8));
        System.setErr(new PrintStream(tool.err, true, StandardCharsets.UTF_8));
        System.setIn(new ByteArrayInputStream(request.path("input").asText("").getBytes(StandardCharsets.UTF_8)));
        Exit.setExitProcedure((code, message) -> tool.end(code));
        Exit.setHaltProcedure((code, message) -> tool.end(code));
        Exit.setShutdownHookAdder((name, hook) -> { });
        try {
            tool.main(request.get("name").asText(), Driver.texts(request.get("arguments")).toArray(new String[0]));
        } finally {
            System.setOut(out);
            System.setErr(err);
            System.setIn(in);
        }
        return tool.ended;
    }

    private void main(String name, String[] arguments) throws Exception {
        Class<?> tool = Class.forName(name);
        forgetEarlierRuns(tool);
        try {
            tool.getMethod("main", String[].class).invoke(null, (Object) arguments);
            note(0);
        } catch (InvocationTargetException failed) {
            if (ended == null) {
                throw failed;
            }
        }
    }

    /** What a tool does after its first exit, such as reporting our exception, does not count. */
    private void note(int code) {
        if (ended == null) {
            ended = Map.of(
                "code", code,
                "out", out.toString(StandardCharsets.UTF_8),
                "err", err.toString(StandardCharsets.UTF_8));
        }
    }

    private void end(int code) {
        note(code);
        throw new Ended();
    }

    /** The console consumer counts its messages in a static field, and stops by it. */
    private static void forgetEarlierRuns(Class<?> tool) throws Exception {
        if (tool.getSimpleName().equals("ConsoleConsumer")) {
            Field count = tool.getDeclaredField("messageCount");
            count.setAccessible(true);
            count.setInt(null, 0);
        }
    }
}
