package docstore.client;

import static docstore.client.Tests.equal;
import static docstore.client.Tests.fails;
import static docstore.client.Tests.isTrue;

import docstore.client.Balancer.Health;
import docstore.client.Balancer.Server;
import docstore.client.Tests.Test;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.Arrays;
import java.util.Collections;
import java.util.List;
import java.util.Map;
import java.util.Random;
import java.util.Set;
import java.util.concurrent.atomic.AtomicLong;
import java.util.function.DoubleSupplier;
import java.util.stream.IntStream;

/** Tests of the parts without I/O. */
final class UnitTests {
    private static final long SECOND = 1_000_000_000L;

    private UnitTests() {}

    static List<Test> all() {
        return List.of(
                new Test("healthy, untried and idle servers are preferred", UnitTests::preference),
                new Test("the less busy server is used", UnitTests::lessBusy),
                new Test("pauses grow to a limit", UnitTests::pauses),
                new Test("health that returns ends a pause", UnitTests::healthReturns),
                new Test("retries are limited", UnitTests::budget),
                new Test("answers are parsed", UnitTests::answers),
                new Test("malformed answers are refused", UnitTests::malformed),
                new Test("ids are encoded", UnitTests::ids),
                new Test("batches split by ids and by bytes", UnitTests::batches),
                new Test("wrong options are refused", UnitTests::options));
    }

    private static Balancer balancer(AtomicLong now, DoubleSupplier random, String... addresses) {
        return new Balancer(List.of(addresses), now::get, random);
    }

    private static void preference() {
        for (double draw : new double[] {0, 0.3, 0.6, 0.99}) {
            AtomicLong now = new AtomicLong(Long.MAX_VALUE - SECOND / 2); // the clock may wrap around
            Balancer balancer = balancer(now, () -> draw, "good", "unknown", "bad", "paused");
            Server good = balancer.servers.get(0), unknown = balancer.servers.get(1), bad = balancer.servers.get(2), paused = balancer.servers.get(3);
            good.inFlight = 9;
            balancer.setHealth(good, Health.SERVING);
            balancer.setHealth(bad, Health.NOT_SERVING);
            balancer.setHealth(paused, Health.SERVING);
            balancer.refused(paused);
            equal(good, balancer.begin(Set.of()));
            equal(unknown, balancer.begin(Set.of(good)));
            isTrue(Set.of(bad, paused).contains(balancer.begin(Set.of(good, unknown))), "a bad or paused server is the last choice");
            equal(good, balancer.begin(Set.copyOf(balancer.servers)));
            now.addAndGet(SECOND);
            equal(paused, balancer.begin(Set.of(good)));
        }
    }

    private static void lessBusy() {
        for (double draw : new double[] {0, 0.6}) {
            Balancer balancer = balancer(new AtomicLong(), () -> draw, "a", "b");
            Server a = balancer.servers.get(0), b = balancer.servers.get(1);
            a.inFlight = 3;
            b.inFlight = 2;
            equal(b, balancer.begin(Set.of()));
            equal(3, b.inFlight);
            balancer.end(b);
            equal(2, b.inFlight);
        }
    }

    private static void pauses() {
        Balancer balancer = balancer(new AtomicLong(), () -> 0.5, "a");
        Server server = balancer.servers.get(0);
        for (long want : new long[] {SECOND / 10, SECOND / 5, SECOND * 2 / 5}) {
            balancer.refused(server);
            equal(want, server.pausedUntil);
        }
        for (int i = 0; i < 100; i++) {
            balancer.refused(server);
        }
        equal(5 * SECOND, server.pausedUntil);
        balancer.answered(server);
        isTrue(!server.paused && server.failures == 0, "an answer ends the pause");
    }

    private static void healthReturns() throws InterruptedException {
        AtomicLong now = new AtomicLong();
        Balancer balancer = balancer(now, () -> 0.5, "a", "b");
        Server a = balancer.servers.get(0), b = balancer.servers.get(1);
        balancer.setHealth(a, Health.SERVING);
        balancer.setHealth(b, Health.SERVING);
        balancer.refused(a);
        balancer.setHealth(a, Health.SERVING);
        equal(2, a.rank(0)); // an overloaded server is healthy all the time
        balancer.lost(a);
        equal(2, a.rank(0));
        balancer.setHealth(a, Health.SERVING);
        equal(0, a.rank(0));
        balancer.setHealth(a, Health.NOT_SERVING);
        isTrue(balancer.awaitHealthy(0), "b is healthy");
        balancer.setHealth(b, Health.UNKNOWN);
        isTrue(!balancer.awaitHealthy(0), "none is healthy");
        equal("{a=false, b=false}", balancer.healthy().toString());
    }

    private static void budget() {
        RetryBudget budget = new RetryBudget(0);
        int granted = 0;
        while (budget.take(0)) {
            granted++;
        }
        equal(64, granted);
        for (int i = 0; i < 11; i++) {
            budget.call();
        }
        isTrue(budget.take(0) && budget.take(0) && !budget.take(0), "a fifth of the calls");
        isTrue(budget.take(SECOND / 10) && !budget.take(SECOND / 10), "ten a second");
        isTrue(!budget.take(SECOND / 20), "the clock went back");
    }

    private static byte[] bytes(String text) {
        return text.getBytes(StandardCharsets.UTF_8);
    }

    private static Answer parse(String line) throws Json.MalformedException {
        byte[] input = bytes("x" + line + "x"); // a part of a response
        return Json.answer(input, 1, input.length - 1);
    }

    private static void answers() throws Exception {
        String[][] cases = { // line, id, kind, document
            {"{\"id\":\"a\",\"found\":true,\"document\":{\"x\": [1, \"}\\\"\"]}}", "a", "FOUND", "{\"x\": [1, \"}\\\"\"]}"},
            {"{\"id\":\"a\",\"found\":true,\"document\":-1.5e3}", "a", "FOUND", "-1.5e3"},
            {" { \"found\" : true , \"document\" : \"t\" , \"id\" : \"a\" , \"more\" : [ ] } ", "a", "FOUND", "\"t\""},
            {"{\"id\":\"a\",\"found\":true,\"document_base64\":\"ewp9\"}", "a", "FOUND", "{\n}"},
            {"{\"id_base64\":\"w7w=\",\"found\":true,\"document\":null}", "ü", "FOUND", "null"},
            {"{\"id\":\"\\u00fc \\\"\\\\\\/\\n \\ud83d\\ude00\",\"found\":false}", "ü \"\\/\n 😀", "ABSENT", null},
            {"{\"id\":\"a\",\"found\":false,\"code\":\"unavailable\",\"error\":\"why\"}", "a", "UNAVAILABLE", null},
            {"{\"id\":\"a\",\"found\":false,\"code\":\"invalid_id\",\"error\":\"why\"}", "a", "ERROR", null},
            {"{\"id\":\"a\",\"found\":false,\"code\":\"new\",\"error\":\"why\"}", "a", "ERROR", null},
        };
        for (String[] c : cases) {
            Answer answer = parse(c[0]);
            equal(c[1], answer.id());
            equal(c[2], answer.kind().name());
            equal(c[3], answer.text());
            if (answer.error() != null) {
                equal("why", answer.error().getMessage());
            }
        }
        equal("[moved, there]", Arrays.toString(Json.error(bytes("{\"error\":{\"code\":\"moved\",\"message\":\"there\"}}\n"))));
    }

    private static void malformed() throws Exception {
        String good = "{\"id\":\"a\\u00fc\",\"found\":true,\"document\":{\"x\":[1,\"\\\"\"]}}";
        for (int i = 0; i < good.length(); i++) {
            String part = good.substring(0, i);
            fails(Json.MalformedException.class, () -> parse(part));
        }
        for (String line : List.of("[]", "{}", "{\"id\":\"a\"}", "{\"id\":1,\"found\":false}", "{\"id\":\"a\",\"found\":1}",
                "{\"id\":\"a\",\"found\":true}", "{\"id\":\"a\",\"found\":false}}", "{\"id\":\"a\",,\"found\":false}", "{\"id\":}",
                "{\"id_base64\":\"*\",\"found\":false}", "{\"id\":\"\\x\",\"found\":false}", "{\"id\":\"\\u00g0\",\"found\":false}",
                "{\"id\":\"a\",\"found\":true,\"document\":" + "[".repeat(20_000) + "]".repeat(20_000) + "}")) {
            fails(Json.MalformedException.class, () -> parse(line));
        }
        long seed = new Random().nextLong();
        Random random = new Random(seed);
        String interesting = "{}[]\",:\\u0a \0\u007f";
        for (int i = 0; i < 20_000; i++) { // an answer or a MalformedException, nothing else
            byte[] line = bytes(good);
            for (int changes = 1 + random.nextInt(3); changes > 0; changes--) {
                line[random.nextInt(line.length)] = (byte) interesting.charAt(random.nextInt(interesting.length()));
            }
            try {
                Json.answer(line, 0, line.length);
            } catch (Json.MalformedException expected) {
                continue;
            } catch (RuntimeException e) {
                throw new AssertionError("seed " + seed + ": " + new String(line, StandardCharsets.UTF_8), e);
            }
        }
    }

    private static void ids() throws Exception {
        for (Map.Entry<String, List<String>> c : Map.of("{\"ids\":[]}", List.<String>of(), "{\"ids\": [ ] }\n", List.<String>of(),
                "{\"ids\":[\"a\", \"\\u00fc\" ,{\"id_base64\":\"w7w=\"}],\"next\":\"/collections\"}", List.of("a", "ü", "ü")).entrySet()) {
            equal(c.getValue(), Json.ids(bytes(c.getKey())).stream().map(id -> new String(id, StandardCharsets.UTF_8)).toList());
        }
        for (String body : List.of("{}", "[]", "{\"ids\":1}", "{\"ids\":[1]}", "{\"ids\":[{}]}", "{\"ids\":[\"a\",]}", "{\"ids\":[\"a\" \"b\"]}", "{\"ids\":[\"a\"")) {
            fails(Json.MalformedException.class, () -> Json.ids(bytes(body)));
        }
        equal("\"a\\\"\\\\\\u000aü\"", new String(Json.id(bytes("a\"\\\nü")), StandardCharsets.UTF_8));
        equal("{\"id_base64\":\"/w==\"}", new String(Json.id(new byte[] {-1}), StandardCharsets.UTF_8));
        equal("a-_9%2E%2E%2F%20%25%C3%BC", Client.escape(bytes("a-_9../ %ü")));
    }

    private static void batches() {
        byte[] one = bytes("x"), long1 = bytes("x".repeat(1024)), quotes = bytes("\"".repeat(1024));
        int fit = ((4 << 20) - 2) / 1027, quotesFit = ((4 << 20) - 2) / 2051;
        Object[][] cases = { // id, ids, ids of a batch, batches
            {one, 0, 5, List.of()},
            {one, 5, 5, List.of(5)},
            {one, 11, 5, List.of(5, 5, 1)},
            {long1, fit, 16_384, List.of(fit)},
            {long1, 2 * fit + 1, 16_384, List.of(fit, fit, 1)},
            {quotes, quotesFit + 1, 16_384, List.of(quotesFit, 1)},
        };
        for (Object[] c : cases) {
            int n = (int) c[1];
            List<Integer> indexes = IntStream.range(0, n).boxed().toList();
            List<List<Integer>> got = Client.split(Collections.nCopies(n, (byte[]) c[0]), indexes, (int) c[2]);
            equal(c[3], got.stream().map(List::size).toList());
            equal(indexes, got.stream().flatMap(List::stream).toList());
        }
    }

    private static void options() throws Exception {
        for (Tests.Body body : List.<Tests.Body>of(
                () -> Client.of("jobs"),
                () -> Client.of("", "a:1"),
                () -> Client.of("jobs", "a:1", "a:1"),
                () -> Client.of("jobs", ""),
                () -> Client.of("jobs", "a"),
                () -> Client.of("jobs", "a:1/b"),
                () -> Client.of("jobs", "u@a:1"),
                () -> Client.of("jobs", "http://a:1"),
                () -> Client.of("jobs", "a:1").timeout(Duration.ZERO),
                () -> Client.of("jobs", "a:1").attemptTimeout(Duration.ofDays(2)),
                () -> Client.of("jobs", "a:1").maxRetries(-1),
                () -> Client.of("jobs", "a:1").batchIDs(16_385),
                () -> Client.of("jobs", "a:1").token(() -> "secret").build())) {
            fails(IllegalArgumentException.class, body);
        }
        Client.of("jobs", "[::1]:7071", "host-1.example:7071").build().close();
    }
}
