import java.sql.Connection;
import java.sql.SQLException;
import java.sql.Savepoint;
import java.sql.Statement;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;

/** What programs, pools and tools do with a connection besides queries. */
final class Sessions {
    private static final String HANG = "SELECT hang()";

    private final Connection connection;

    Sessions(Connection connection) {
        this.connection = connection;
    }

    Map<String, Object> settings() throws SQLException {
        Map<String, Object> found = new LinkedHashMap<>();
        found.put("valid", connection.isValid(30));
        found.put("catalog", connection.getCatalog());
        found.put("schema", connection.getSchema());
        connection.setSchema("lake");
        connection.setClientInfo("ApplicationName", "a tool");
        found.put("application", connection.getClientInfo("ApplicationName"));
        connection.setReadOnly(true);
        found.put("read only", connection.isReadOnly());
        connection.setReadOnly(false);
        connection.setTransactionIsolation(Connection.TRANSACTION_REPEATABLE_READ);
        found.put("isolation", connection.getTransactionIsolation());
        connection.setSchema("public");
        return found;
    }

    /** An error in a transaction ends it, except for what a savepoint saves. */
    Object transaction() throws SQLException {
        Queries queries = new Queries(connection);
        connection.setAutoCommit(false);
        try {
            queries.one();
            Savepoint saved = connection.setSavepoint("here");
            String first = stateOf(() -> queries.execute("SELECT fail()"));
            String second = stateOf(queries::one);
            connection.rollback(saved);
            Object afterwards = queries.one();
            connection.commit();
            return List.of(first, second, afterwards);
        } finally {
            connection.rollback();
            connection.setAutoCommit(true);
        }
    }

    private static String stateOf(Report.Step step) throws SQLException {
        try {
            return "no error: " + step.run();
        } catch (SQLException failed) {
            return failed.getSQLState();
        } catch (Exception failed) {
            return failed.toString();
        }
    }

    /** Cancelled from another thread, until it ends: the first time may be before it runs. */
    Object cancelled() throws Exception {
        try (Statement statement = connection.createStatement()) {
            Thread stopper = new Thread(() -> {
                try {
                    while (true) {
                        Thread.sleep(100);
                        statement.cancel();
                    }
                } catch (InterruptedException ended) {
                    Thread.currentThread().interrupt();
                } catch (SQLException failed) {
                    failed.printStackTrace();
                }
            });
            stopper.start();
            try {
                return statement.execute(HANG);
            } finally {
                stopper.interrupt();
                stopper.join();
            }
        }
    }

    Object outOfTime() throws SQLException {
        try (Statement statement = connection.createStatement()) {
            statement.setQueryTimeout(1);
            return statement.execute(HANG);
        }
    }

    Object outOfTheServersTime() throws SQLException {
        Queries queries = new Queries(connection);
        queries.execute("SET statement_timeout = '200ms'");
        try {
            return queries.execute(HANG);
        } finally {
            queries.execute("RESET statement_timeout");
        }
    }
}
