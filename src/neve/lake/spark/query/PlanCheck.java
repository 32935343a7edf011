/*
 * Walks Spark's plans and finds what is not listed. Compiled by Janino, in the JVM that runs the
 * queries: hence no generics and no lambdas. neve.lake.spark.query.plan_check says what it is for.
 */
package neve;

import java.util.ArrayDeque;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashSet;
import java.util.List;
import java.util.Locale;
import java.util.Set;
import org.apache.spark.sql.catalyst.FunctionIdentifier;
import org.apache.spark.sql.catalyst.analysis.FunctionRegistryBase;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.catalyst.trees.TreeNode;
import org.apache.spark.sql.classic.SparkSession;
import org.apache.spark.sql.types.DataType;

public final class PlanCheck {
  private static final String ROOT = "org.apache.spark.sql.";
  private SparkSession session;
  private Set parsed, analysed, functions, tableFunctions, hints;

  public void prepare(SparkSession session, String parsed, String analysed, String functions,
      String tableFunctions, String hints) {
    this.session = session;
    this.parsed = words(parsed);
    this.analysed = words(analysed);
    this.functions = words(functions);
    this.tableFunctions = words(tableFunctions);
    this.hints = words(hints);
    retain(session.sessionState().functionRegistry(), this.functions);
    retain(session.sessionState().tableFunctionRegistry(), this.tableFunctions);
  }

  /** What is refused about a statement, or nothing; then the relations that are not views. */
  public List checkText(String text, String views) throws Exception {
    Object plan = parse(text);
    Set known = words(views);
    List named = new ArrayList();
    List answer = new ArrayList();
    ArrayDeque todo = new ArrayDeque();
    todo.push(plan);
    while (!todo.isEmpty()) {
      Object next = todo.pop();
      if (next instanceof TreeNode) {
        String refused = refusal(next, known, named);
        if (refused != null) {
          answer.add(refused);
          return answer;
        }
      }
      pushParts(next, todo);
    }
    answer.add("");
    for (int at = 0; at < named.size(); at++) {
      List parts = (List) named.get(at);
      boolean single = parts.size() == 1;
      if (!single || !known.contains(lower((String) parts.get(0)))) answer.add(parts);
    }
    return answer;
  }

  /** The first plan of an analysed statement that is refused, or nothing. */
  public String checkPlan(Object plan) {
    ArrayDeque todo = new ArrayDeque();
    todo.push(plan);
    while (!todo.isEmpty()) {
      Object next = todo.pop();
      boolean logical = next instanceof LogicalPlan;
      if (logical && !analysed.contains(nameOf(next))) return nameOf(next);
      pushParts(next, todo);
    }
    return "";
  }

  private Object parse(String text) throws Exception {
    scala.Option before = SparkSession.getActiveSession();
    SparkSession.setActiveSession(session);
    try {
      return session.sessionState().sqlParser().parsePlan(text);
    } finally {
      if (before.isDefined()) {
        SparkSession.setActiveSession((SparkSession) before.get());
      } else {
        SparkSession.clearActiveSession();
      }
    }
  }

  private String refusal(Object node, Set known, List named) {
    String name = nameOf(node);
    if (!parsed.contains(name)) return name;
    Object first = ((scala.Product) node).productArity() == 0
        ? null : ((scala.Product) node).productElement(0);
    if (name.endsWith(".UnresolvedFunction") || name.endsWith(".UnresolvedGenerator")) {
      return builtin(partsOf(first), functions);
    } else if (name.endsWith(".UnresolvedTableValuedFunction")) {
      return builtin(partsOf(first), tableFunctions);
    } else if (name.endsWith(".UnresolvedHint")) {
      return hints.contains(lower((String) first)) ? null : "the hint " + first;
    } else if (name.endsWith(".UnresolvedRelation")) {
      named.add(partsOf(first));
    } else if (name.endsWith(".UnresolvedWith")) {
      define((scala.collection.Iterable) ((scala.Product) node).productElement(1), known);
    }
    return null;
  }

  private static void define(scala.collection.Iterable expressions, Set known) {
    scala.collection.Iterator each = expressions.iterator();
    while (each.hasNext()) {
      known.add(lower((String) ((scala.Product) each.next()).productElement(0)));
    }
  }

  private static String builtin(List parts, Set listed) {
    int last = parts.size() - 1;
    String qualifier = lower(String.join(".", parts.subList(0, last)));
    boolean plain = last == 0 || qualifier.equals("builtin") || qualifier.equals("system.builtin");
    if (plain && listed.contains(lower((String) parts.get(last)))) return null;
    return "the function " + String.join(".", parts);
  }

  /** A name as a sequence, or as an identifier: then its last part comes first. */
  private static List partsOf(Object name) {
    List parts = new ArrayList();
    boolean sequence = name instanceof scala.collection.Iterable;
    scala.collection.Iterator each = sequence
        ? ((scala.collection.Iterable) name).iterator() : ((scala.Product) name).productIterator();
    while (each.hasNext()) {
      Object part = each.next();
      if (part instanceof scala.Option) {
        part = ((scala.Option) part).isDefined() ? ((scala.Option) part).get() : null;
      }
      if (part instanceof scala.collection.Iterable) parts.addAll(0, partsOf(part));
      else if (part != null) parts.add(sequence ? parts.size() : 0, part.toString());
    }
    return parts;
  }

  private static void pushParts(Object of, ArrayDeque todo) {
    scala.collection.Iterator each = null;
    if (of instanceof DataType) return;
    if (of instanceof scala.collection.Iterable) {
      each = ((scala.collection.Iterable) of).iterator();
    } else if (of instanceof scala.Product) {
      each = ((scala.Product) of).productIterator();
    }
    while (each != null && each.hasNext()) {
      Object part = each.next();
      if (part != null) todo.push(part);
    }
  }

  private static void retain(FunctionRegistryBase registry, Set listed) {
    scala.collection.Iterator each = registry.listFunction().iterator();
    while (each.hasNext()) {
      FunctionIdentifier name = (FunctionIdentifier) each.next();
      if (!listed.contains(lower(name.funcName()))) registry.dropFunction(name);
    }
  }

  private static String nameOf(Object node) {
    String name = node.getClass().getName();
    if (name.startsWith(ROOT)) name = name.substring(ROOT.length());
    return name.endsWith("$") ? name.substring(0, name.length() - 1) : name;
  }

  private static Set words(String text) {
    return new HashSet(Arrays.asList(text.split(" ")));
  }

  private static String lower(String text) {
    return text.toLowerCase(Locale.ROOT);
  }
}
