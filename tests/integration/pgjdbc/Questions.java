import java.sql.Connection;
import java.sql.DriverManager;
import java.sql.SQLException;
import java.util.Properties;

/** Connects with pgjdbc to a port of this machine, as a user with a password, and asks what programs and tools ask. */
public final class Questions {
    private final String url;
    private final String user;
    private final String password;

    private Questions(String port, String user, String password) {
        this.url = "jdbc:postgresql://127.0.0.1:" + port + "/neve";
        this.user = user;
        this.password = password;
    }

    public static void main(String[] given) throws SQLException {
        Questions questions = new Questions(given[0], given[1], given[2]);
        try (Connection connection = questions.connect()) {
            Metadata.ask(connection);
            read(new Queries(connection));
            write(new Queries(connection));
            live(new Sessions(connection), new Queries(connection));
        }
        questions.connectOtherwise();
        questions.failToConnect();
    }

    private static void read(Queries queries) {
        Report.step("one", queries::one);
        Report.step("every type", queries::everyType);
        Report.step("columns", queries::columns);
        Report.step("columns beforehand", queries::columnsBeforehand);
        Report.step("parameters", () -> queries.parameters(1));
        Report.step("parameters prepared", () -> queries.parameters(7));
        Report.step("no value", queries::noValue);
        Report.step("parameter types", queries::parameterTypes);
        Report.step("portions", queries::portions);
        Report.step("beginning", queries::beginning);
        Report.step("first rows", queries::firstRows);
        Report.step("back and forth", queries::backAndForth);
        Report.step("several", queries::several);
    }

    private static void write(Queries queries) {
        Report.step("insert", () -> queries.update("INSERT INTO orders (key) VALUES (?)", "k"));
        Report.step("update", () -> queries.update("UPDATE lake.clicks SET id = ? WHERE id = ?", 1, 2));
        Report.step("delete", () -> queries.execute("DELETE FROM lake.clicks"));
        Report.step("create", () -> queries.execute("CREATE TABLE t (a int)"));
        Report.step("drop", () -> queries.execute("DROP TABLE orders"));
        Report.step("error", () -> queries.execute("SELECT fail()"));
    }

    private static void live(Sessions sessions, Queries queries) {
        Report.step("settings", sessions::settings);
        Report.step("transaction", sessions::transaction);
        Report.step("cancelled", sessions::cancelled);
        Report.step("after a cancel", queries::one);
        Report.step("out of time", sessions::outOfTime);
        Report.step("out of the server's time", sessions::outOfTheServersTime);
        Report.step("after all", queries::one);
    }

    private void connectOtherwise() throws SQLException {
        try (Connection connection = connect("prepareThreshold", "-1")) {
            Queries queries = new Queries(connection);
            Report.step("every type in binary", queries::everyType);
        }
        try (Connection connection = connect("preferQueryMode", "simple")) {
            Queries queries = new Queries(connection);
            Report.step("parameters in the text", () -> queries.parameters(1));
        }
        try (Connection connection = connect("autosave", "always")) {
            Report.step("transaction that is saved", new Sessions(connection)::transaction);
        }
    }

    private void failToConnect() {
        Report.step("wrong password", () -> connect("password", "wrong"));
        Report.step("unknown user", () -> connect("user", "nobody"));
    }

    private Connection connect(String... options) throws SQLException {
        Properties all = new Properties();
        all.setProperty("user", user);
        all.setProperty("password", password);
        all.setProperty("sslmode", "disable");
        for (int at = 0; at < options.length; at += 2) {
            all.setProperty(options[at], options[at + 1]);
        }
        return DriverManager.getConnection(url, all);
    }
}
