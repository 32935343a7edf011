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
        final int code;

        Ended(int code) {
            super("exit " + code);
            this.code = code;
        }
    }

    private Tools() { }

    static Map<String, Object> run(JsonNode request) throws Exception {
        PrintStream out = System.out;
        PrintStream err = System.err;
        InputStream in = System.in;
        ByteArrayOutputStream said = new ByteArrayOutputStream();
        ByteArrayOutputStream complained = new ByteArrayOutputStream();
        System.setOut(new PrintStream(said, true, StandardCharsets.UTF_8));
        System.setErr(new PrintStream(complained, true, StandardCharsets.UTF_8));
        System.setIn(new ByteArrayInputStream(request.path("input").asText("").getBytes(StandardCharsets.UTF_8)));
        Exit.setExitProcedure((code, message) -> { throw new Ended(code); });
        Exit.setHaltProcedure((code, message) -> { throw new Ended(code); });
        Exit.setShutdownHookAdder((name, hook) -> { });
        try {
            int code = main(request.get("name").asText(), Driver.texts(request.get("arguments")).toArray(new String[0]));
            return Map.of("code", code, "out", said.toString(StandardCharsets.UTF_8), "err", complained.toString(StandardCharsets.UTF_8));
        } finally {
            System.setOut(out);
            System.setErr(err);
            System.setIn(in);
        }
    }

    private static int main(String name, String[] arguments) throws Exception {
        Class<?> tool = Class.forName(name);
        forgetEarlierRuns(tool);
        try {
            tool.getMethod("main", String[].class).invoke(null, (Object) arguments);
            return 0;
        } catch (InvocationTargetException failed) {
            for (Throwable each = failed.getCause(); each != null; each = each.getCause()) {
                if (each instanceof Ended) {
                    return ((Ended) each).code;
                }
            }
            throw failed;
        }
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
