import java.lang.reflect.InvocationTargetException;
import java.lang.reflect.Method;
import java.sql.Connection;
import java.sql.DatabaseMetaData;
import java.sql.ResultSet;
import java.sql.SQLException;
import java.util.Map;
import java.util.Set;
import java.util.TreeMap;
import java.util.TreeSet;

/** Everything that DatabaseMetaData can be asked. */
final class Metadata {
    private interface Question {
        ResultSet ask() throws SQLException;
    }

    private final DatabaseMetaData about;
    private final Set<String> asked = new TreeSet<>();

    private Metadata(DatabaseMetaData about) {
        this.about = about;
    }

    static void ask(Connection connection) throws SQLException {
        Metadata metadata = new Metadata(connection.getMetaData());
        metadata.askForRelations();
        metadata.askForKeys();
        metadata.askForFunctionsAndTypes();
        Report.step("facts", metadata::facts);
        Report.step("not asked", metadata::notAsked);
    }

    private void ask(String method, Question question) {
        ask(method, "", question);
    }

    private void ask(String method, String which, Question question) {
        asked.add(method);
        Report.step(method + which, () -> Report.rows(question.ask()));
    }

    private void askForRelations() {
        ask("getCatalogs", about::getCatalogs);
        ask("getSchemas", about::getSchemas);
        ask("getSchemas", " like l%", () -> about.getSchemas(null, "l%"));
        ask("getTableTypes", about::getTableTypes);
        ask("getTables", () -> about.getTables(null, null, "%", new String[] {"TABLE", "VIEW"}));
        ask("getTables", " of a schema", () -> about.getTables("neve", "lake", "cl_cks", null));
        ask("getTables", " escaped", () -> about.getTables(null, "public", "orders.v\\_", null));
        ask("getTables", " of the system", () -> about.getTables(null, "pg_catalog", "pg_class", null));
        ask("getColumns", () -> about.getColumns(null, "public", "orders", "%"));
        ask("getColumns", " of the lake", () -> about.getColumns("neve", "lake", "%", null));
        ask("getColumns", " by name", () -> about.getColumns(null, null, null, "off%"));
        ask("getTablePrivileges", () -> about.getTablePrivileges(null, "public", "orders"));
        ask("getColumnPrivileges", () -> about.getColumnPrivileges(null, "public", "orders", "offset"));
        ask("getPseudoColumns", () -> about.getPseudoColumns(null, null, "orders", "%"));
        ask("getSuperTables", () -> about.getSuperTables(null, "public", "orders"));
    }

    private void askForKeys() {
        ask("getPrimaryKeys", () -> about.getPrimaryKeys(null, "public", "orders"));
        ask("getIndexInfo", () -> about.getIndexInfo(null, "public", "orders", false, true));
        ask("getIndexInfo", " unique", () -> about.getIndexInfo(null, "lake", "clicks", true, false));
        ask("getImportedKeys", () -> about.getImportedKeys(null, "public", "orders"));
        ask("getExportedKeys", () -> about.getExportedKeys(null, "public", "orders"));
        ask("getCrossReference", () -> about.getCrossReference(null, "public", "orders", null, "lake", "clicks"));
        ask("getBestRowIdentifier", () ->
                about.getBestRowIdentifier(null, "public", "orders", DatabaseMetaData.bestRowSession, true));
        ask("getVersionColumns", () -> about.getVersionColumns(null, "public", "orders"));
    }

    private void askForFunctionsAndTypes() {
        ask("getProcedures", () -> about.getProcedures(null, null, "%"));
        ask("getProcedureColumns", () -> about.getProcedureColumns(null, null, "%", "%"));
        ask("getFunctions", () -> about.getFunctions(null, null, "%"));
        ask("getFunctionColumns", () -> about.getFunctionColumns(null, "public", "%", "%"));
        ask("getTypeInfo", about::getTypeInfo);
        ask("getUDTs", () -> about.getUDTs(null, null, "%", null));
        ask("getSuperTypes", () -> about.getSuperTypes(null, null, "%"));
        ask("getAttributes", () -> about.getAttributes(null, null, "%", "%"));
        ask("getClientInfoProperties", about::getClientInfoProperties);
    }

    /** Whatever has no arguments: names, numbers, and yes or no. */
    private Map<String, Object> facts() throws IllegalAccessException {
        Map<String, Object> facts = new TreeMap<>();
        for (Method method : DatabaseMetaData.class.getMethods()) {
            Class<?> kind = method.getReturnType();
            boolean isFact = kind.isPrimitive() || kind == String.class;
            if (method.getParameterCount() == 0 && isFact) {
                try {
                    facts.put(method.getName(), method.invoke(about));
                } catch (InvocationTargetException failed) {
                    facts.put(method.getName(), failed.getCause().toString());
                }
            }
        }
        return facts;
    }

    /** Questions of this Java that were left out above. */
    private Set<String> notAsked() {
        Set<String> left = new TreeSet<>();
        for (Method method : DatabaseMetaData.class.getMethods()) {
            if (method.getReturnType() == ResultSet.class && !asked.contains(method.getName())) {
                left.add(method.getName());
            }
        }
        return left;
    }
}
