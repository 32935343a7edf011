import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.sql.ResultSet;
import java.sql.ResultSetMetaData;
import java.sql.SQLException;
import java.util.ArrayList;
import java.util.HexFormat;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;

/** Says as JSON what each step found, a line a step: an answer, or an error with its SQLSTATE. */
final class Report {
    interface Step {
        Object run() throws Exception;
    }

    private static final PrintStream OUT = new PrintStream(System.out, true, StandardCharsets.UTF_8);

    private Report() { }

    static void step(String name, Step step) {
        Map<String, Object> said = new LinkedHashMap<>();
        said.put("step", name);
        try {
            said.put("answer", step.run());
        } catch (SQLException failed) {
            said.put("state", failed.getSQLState());
            said.put("error", failed.getMessage());
        } catch (Exception failed) {
            said.put("state", "");
            said.put("error", failed.toString());
        }
        OUT.println(json(said));
    }

    /** Every row by the names of its columns. */
    static List<Map<String, Object>> rows(ResultSet found) throws SQLException {
        try (found) {
            ResultSetMetaData about = found.getMetaData();
            List<Map<String, Object>> rows = new ArrayList<>();
            while (found.next()) {
                Map<String, Object> row = new LinkedHashMap<>();
                for (int at = 1; at <= about.getColumnCount(); at++) {
                    row.put(about.getColumnLabel(at), found.getObject(at));
                }
                rows.add(row);
            }
            return rows;
        }
    }

    /** The first column of every row. */
    static List<Object> column(ResultSet found) throws SQLException {
        try (found) {
            List<Object> values = new ArrayList<>();
            while (found.next()) {
                values.add(found.getObject(1));
            }
            return values;
        }
    }

    private static String json(Object value) throws IllegalArgumentException {
        if (value == null || value instanceof Number || value instanceof Boolean) {
            return String.valueOf(value);
        }
        if (value instanceof Map<?, ?> map) {
            List<String> parts = new ArrayList<>();
            map.forEach((name, each) -> parts.add(quoted(String.valueOf(name)) + ": " + json(each)));
            return "{" + String.join(", ", parts) + "}";
        }
        if (value instanceof Iterable<?> list) {
            List<String> parts = new ArrayList<>();
            list.forEach(each -> parts.add(json(each)));
            return "[" + String.join(", ", parts) + "]";
        }
        if (value instanceof Object[] array) {
            return json(java.util.Arrays.asList(array));
        }
        if (value instanceof byte[] bytes) {
            return quoted(HexFormat.of().formatHex(bytes));
        }
        if (value instanceof java.sql.Array array) {
            try {
                return json(array.getArray());
            } catch (SQLException failed) {
                throw new IllegalArgumentException(failed);
            }
        }
        return quoted(value.toString());
    }

    private static String quoted(String text) {
        StringBuilder out = new StringBuilder("\"");
        for (char each : text.toCharArray()) {
            if (each == '"' || each == '\\') {
                out.append('\\').append(each);
            } else if (each < ' ') {
                out.append(String.format("\\u%04x", (int) each));
            } else {
                out.append(each);
            }
        }
        return out.append('"').toString();
    }
}
