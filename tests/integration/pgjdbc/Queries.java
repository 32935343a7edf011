import java.math.BigDecimal;
import java.sql.Connection;
import java.sql.Date;
import java.sql.JDBCType;
import java.sql.ParameterMetaData;
import java.sql.PreparedStatement;
import java.sql.ResultSet;
import java.sql.ResultSetMetaData;
import java.sql.SQLException;
import java.sql.Statement;
import java.sql.Timestamp;
import java.sql.Types;
import java.time.LocalDate;
import java.time.LocalDateTime;
import java.time.LocalTime;
import java.time.OffsetDateTime;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.UUID;

/** Queries in the ways that programs and tools run them. */
final class Queries {
    private static final String EVERY_TYPE = "SELECT every_type()";

    private final Connection connection;

    Queries(Connection connection) {
        this.connection = connection;
    }

    List<Map<String, Object>> everyType() throws SQLException {
        try (PreparedStatement asked = connection.prepareStatement(EVERY_TYPE)) {
            return Report.rows(asked.executeQuery());
        }
    }

    /** What a table of results is headed with. */
    List<Map<String, Object>> columns() throws SQLException {
        try (Statement statement = connection.createStatement();
                ResultSet found = statement.executeQuery(EVERY_TYPE)) {
            return described(found.getMetaData());
        }
    }

    List<Map<String, Object>> columnsBeforehand() throws SQLException {
        try (PreparedStatement asked = connection.prepareStatement(EVERY_TYPE)) {
            return described(asked.getMetaData());
        }
    }

    private static List<Map<String, Object>> described(ResultSetMetaData about) throws SQLException {
        List<Map<String, Object>> columns = new ArrayList<>();
        for (int at = 1; at <= about.getColumnCount(); at++) {
            Map<String, Object> column = new LinkedHashMap<>();
            column.put("name", about.getColumnName(at));
            column.put("label", about.getColumnLabel(at));
            column.put("type", JDBCType.valueOf(about.getColumnType(at)).getName());
            column.put("type_name", about.getColumnTypeName(at));
            column.put("class", about.getColumnClassName(at));
            column.put("precision", about.getPrecision(at));
            column.put("scale", about.getScale(at));
            column.put("size", about.getColumnDisplaySize(at));
            column.put("nullable", about.isNullable(at));
            column.put("signed", about.isSigned(at));
            column.put("table", about.getTableName(at));
            column.put("schema", about.getSchemaName(at));
            column.put("increments", about.isAutoIncrement(at));
            columns.add(column);
        }
        return columns;
    }

    /** Every kind of parameter, again and again: from the fifth time on the driver keeps the statement prepared. */
    Object parameters(int times) throws SQLException {
        String marks = "?, ".repeat(17) + "?::text[]";
        List<Map<String, Object>> found = null;
        try (PreparedStatement asked = connection.prepareStatement("SELECT " + marks)) {
            for (int time = 0; time < times; time++) {
                fill(asked);
                found = Report.rows(asked.executeQuery());
            }
        }
        return found;
    }

    private void fill(PreparedStatement asked) throws SQLException {
        int at = 0;
        asked.setShort(++at, (short) 7);
        asked.setInt(++at, -1);
        asked.setLong(++at, 1L << 40);
        asked.setFloat(++at, 0.5f);
        asked.setDouble(++at, -2.25);
        asked.setBigDecimal(++at, new BigDecimal("12.50"));
        asked.setBoolean(++at, true);
        asked.setString(++at, "it's \\ ? grün");
        asked.setBytes(++at, new byte[] {0, -1});
        asked.setDate(++at, Date.valueOf("2026-01-31"));
        asked.setTimestamp(++at, Timestamp.valueOf("2026-01-31 12:30:15.25"));
        asked.setObject(++at, LocalDate.of(2026, 1, 31));
        asked.setObject(++at, LocalTime.of(12, 30, 15));
        asked.setObject(++at, LocalDateTime.of(2026, 1, 31, 12, 30, 15));
        asked.setObject(++at, OffsetDateTime.parse("2026-01-31T12:30:15+02:00"));
        asked.setObject(++at, UUID.fromString("00000000-0000-0000-0000-00000000000a"));
        asked.setArray(++at, connection.createArrayOf("int4", new Integer[] {1, null, 3}));
        asked.setArray(++at, connection.createArrayOf("text", new String[] {"a b", "q\"", null}));
    }

    Object noValue() throws SQLException {
        try (PreparedStatement asked = connection.prepareStatement("SELECT ?, ?, ?")) {
            asked.setNull(1, Types.INTEGER);
            asked.setNull(2, Types.VARCHAR);
            asked.setObject(3, null);
            return Report.rows(asked.executeQuery());
        }
    }

    List<String> parameterTypes() throws SQLException {
        try (PreparedStatement asked = connection.prepareStatement("SELECT ?::int8, ?, ?::text")) {
            ParameterMetaData about = asked.getParameterMetaData();
            List<String> types = new ArrayList<>();
            for (int at = 1; at <= about.getParameterCount(); at++) {
                types.add(about.getParameterTypeName(at));
            }
            return types;
        }
    }

    /** Two results that are read by turns in one transaction, in portions. */
    Object portions() throws SQLException {
        connection.setAutoCommit(false);
        try (Statement one = connection.createStatement(); Statement other = connection.createStatement()) {
            one.setFetchSize(1000);
            other.setFetchSize(700);
            long rows = 0;
            long sum = 0;
            try (ResultSet first = one.executeQuery("SELECT numbers(25000)");
                    ResultSet second = other.executeQuery("SELECT numbers(25000)")) {
                while (first.next() && second.next()) {
                    rows++;
                    sum += first.getLong(1) + second.getLong("n");
                }
            }
            connection.commit();
            return List.of(rows, sum);
        } finally {
            connection.setAutoCommit(true);
        }
    }

    /** The beginning of a result that is too large to be had at once. */
    Object beginning() throws SQLException {
        connection.setAutoCommit(false);
        try (Statement statement = connection.createStatement()) {
            statement.setFetchSize(1000);
            long last = -1;
            try (ResultSet found = statement.executeQuery("SELECT numbers(100000000)")) {
                while (last < 2499 && found.next()) {
                    last = found.getLong(1);
                }
            }
            connection.rollback();
            return last;
        } finally {
            connection.setAutoCommit(true);
        }
    }

    Object firstRows() throws SQLException {
        try (Statement statement = connection.createStatement()) {
            statement.setMaxRows(3);
            return Report.column(statement.executeQuery("SELECT numbers(25000)"));
        }
    }

    Object backAndForth() throws SQLException {
        int scrolls = ResultSet.TYPE_SCROLL_INSENSITIVE;
        try (Statement statement = connection.createStatement(scrolls, ResultSet.CONCUR_READ_ONLY);
                ResultSet found = statement.executeQuery("SELECT numbers(20)")) {
            List<Long> seen = new ArrayList<>();
            found.last();
            seen.add(found.getLong(1));
            found.absolute(5);
            seen.add(found.getLong(1));
            found.previous();
            seen.add(found.getLong(1));
            return seen;
        }
    }

    Object several() throws SQLException {
        try (Statement statement = connection.createStatement()) {
            List<Object> found = new ArrayList<>();
            boolean more = statement.execute("SELECT numbers(2); SET application_name = 'x'; SELECT 1");
            while (more || statement.getUpdateCount() >= 0) {
                found.add(more ? Report.column(statement.getResultSet()) : statement.getUpdateCount());
                more = statement.getMoreResults();
            }
            return found;
        }
    }

    Object one() throws SQLException {
        try (Statement statement = connection.createStatement()) {
            return Report.column(statement.executeQuery("SELECT 1"));
        }
    }

    Object execute(String sql) throws SQLException {
        try (Statement statement = connection.createStatement()) {
            return statement.execute(sql);
        }
    }

    Object update(String sql, Object... values) throws SQLException {
        try (PreparedStatement asked = connection.prepareStatement(sql)) {
            for (int at = 0; at < values.length; at++) {
                asked.setObject(at + 1, values[at]);
            }
            return asked.executeUpdate();
        }
    }
}
