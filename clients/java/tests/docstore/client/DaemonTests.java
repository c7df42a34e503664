package docstore.client;

import static docstore.client.Tests.equal;
import static docstore.client.Tests.fails;
import static docstore.client.Tests.isTrue;

import docstore.client.Answer.Kind;
import docstore.client.DocstoreException.Code;
import docstore.client.Tests.Test;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Base64;
import java.util.Collections;
import java.util.Comparator;
import java.util.List;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.concurrent.atomic.AtomicBoolean;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.stream.Collectors;
import java.util.stream.IntStream;
import java.util.stream.Stream;

/** Tests with real daemons. */
final class DaemonTests {
    private static final int DOCUMENTS = 3_000;
    private static final byte[] BYTES_ID = {-1};
    private static final String DAMAGED = "bytes \0 of a document";
    private static final String DAMAGED_BASE64 = Base64.getEncoder().encodeToString(DAMAGED.getBytes(StandardCharsets.UTF_8));

    private final Path directory;
    private final Path bin;
    private final Path queue;
    private final List<Daemon> daemons = new ArrayList<>();
    private Daemon first;

    DaemonTests() throws Exception {
        directory = Files.createTempDirectory("docstore-java-");
        queue = directory.resolve("queue");
        String built = System.getenv("DOCSTORE_BIN");
        bin = built != null ? Path.of(built) : directory.resolve("bin");
        if (built == null) {
            run("", "go", "build", "-C", "../..", "-o", bin + "/", "./cmd/docserviced", "./cmd/docstore-updater");
        }
    }

    List<Test> all() {
        return List.of(
                new Test("documents, batches and scans", this::documents),
                new Test("invalid ids", this::invalidIDs),
                new Test("errors of servers", this::errors),
                new Test("a document that one server cannot read comes from another", this::damaged),
                new Test("TLS and tokens", this::tls),
                new Test("deadlines, interrupts and close end calls", this::ends),
                new Test("more calls than may be in flight wait", this::manyCalls),
                new Test("no call fails while servers are killed, stopped and started", this::faults));
    }

    /** Ends the daemons and removes the files. */
    void end() throws Exception {
        for (Daemon daemon : daemons) {
            daemon.end("KILL"); // a test may have stopped it
        }
        try (Stream<Path> files = Files.walk(directory)) {
            files.sorted(Comparator.reverseOrder()).forEach(file -> file.toFile().delete());
        }
    }

    private void run(String input, String... command) throws Exception {
        Process process = new ProcessBuilder(command).redirectOutput(ProcessBuilder.Redirect.DISCARD).redirectError(ProcessBuilder.Redirect.INHERIT).start();
        try (var in = process.getOutputStream()) {
            in.write(input.getBytes(StandardCharsets.UTF_8));
        }
        equal(0, process.waitFor());
    }

    private Daemon serve(Path queue, String data, String... flags) throws Exception {
        Daemon daemon = Daemon.start(bin, queue, directory.resolve(data), flags);
        daemons.add(daemon);
        return daemon;
    }

    /** Returns the daemon that all tests share. */
    private Daemon first() throws Exception {
        if (first == null) {
            String lines = IntStream.range(0, DOCUMENTS).mapToObj(i -> document(i) + "\n").collect(Collectors.joining())
                    + "{\"_id_base64\":\"/w==\",\"_document_base64\":\"" + DAMAGED_BASE64 + "\"}\n"
                    + "{\"_id_base64\":\"ZGFtYWdlZA==\",\"_document_base64\":\"" + DAMAGED_BASE64 + "\"}\n" // "damaged"
                    + "{\"id\":\"ü/../ä?%&\\\"\",\"x\":1}\n{\"id\":\"..\",\"x\":2}\n{\"id\":\"gone\"}\n{\"id\":\"gone\",\"_delete\":true}\n";
            run(lines, bin + "/docstore-updater", "append", "--queue", queue.toString(), "--quiet");
            first = serve(queue, "one");
        }
        return first;
    }

    private static String id(int i) {
        return String.format("job-%05d", i);
    }

    private static String document(int i) {
        return "{\"id\":\"" + id(i) + "\",\"n\":" + i + "}";
    }

    private static String text(byte[] document) {
        return new String(document, StandardCharsets.UTF_8);
    }

    private void documents() throws Exception {
        try (Client client = Client.of("jobs", first().address).build()) {
            client.waitReady();
            equal("{" + first().address + "=true}", client.health().toString());
            equal(document(7), text(client.get(id(7)).get()));
            equal("{\"id\":\"ü/../ä?%&\\\"\",\"x\":1}", text(client.get("ü/../ä?%&\"").get()));
            equal("{\"id\":\"..\",\"x\":2}", text(client.get("..").get()));
            equal(DAMAGED, text(client.get(BYTES_ID).get()));
            isTrue(client.get("gone").isEmpty() && client.get("missing").isEmpty(), "documents that do not exist");

            List<Integer> numbers = IntStream.range(0, 2 * DOCUMENTS).map(i -> i * 7 % (2 * DOCUMENTS)).boxed().toList();
            List<String> ids = numbers.stream().map(DaemonTests::id).toList();
            List<Answer> answers = client.getMany(ids);
            equal(ids, answers.stream().map(Answer::id).toList());
            for (int i = 0; i < ids.size(); i++) {
                int n = numbers.get(i);
                equal(n < DOCUMENTS ? Kind.FOUND : Kind.ABSENT, answers.get(i).kind());
                equal(n < DOCUMENTS ? document(n) : null, answers.get(i).text());
            }
            equal(List.of(), client.getMany(List.of()));
            equal("{\"id\":\"ü/../ä?%&\\\"\",\"x\":1}", client.getMany(List.of("ü/../ä?%&\"")).get(0).text());

            List<Answer> scanned = client.scan("job-").toList();
            equal(IntStream.range(0, DOCUMENTS).mapToObj(DaemonTests::id).toList(), scanned.stream().map(Answer::id).toList());
            equal(IntStream.range(0, DOCUMENTS).mapToObj(DaemonTests::document).toList(), scanned.stream().map(Answer::text).toList());
            equal(2, client.scan("job-".getBytes(StandardCharsets.UTF_8), id(DOCUMENTS - 3).getBytes(StandardCharsets.UTF_8)).toList().size());
            equal(id(0), client.scan("job-").findFirst().get().id());
            Answer bytes = client.scan(BYTES_ID, new byte[0]).findFirst().get();
            equal(BYTES_ID, bytes.idBytes());
            equal(DAMAGED, bytes.text());
            equal(0, client.scan("none").toList().size());

            equal(scanned.stream().map(Answer::id).toList(), client.scanIds("job-").toList());
            equal(List.of(id(1)), client.scanIds("job-").skip(1).limit(1).toList());
            equal(2, client.scanIds("job-".getBytes(StandardCharsets.UTF_8), id(DOCUMENTS - 3).getBytes(StandardCharsets.UTF_8)).toList().size());
            equal(BYTES_ID, client.scanIds(BYTES_ID, new byte[0]).findFirst().get());
            equal(0, client.scanIds("none").toList().size());
        }
    }

    private void invalidIDs() throws Exception {
        try (Client client = Client.of("jobs", first().address).build()) {
            for (String id : List.of("", "x".repeat(1025), "ü".repeat(513), "a\ud800")) {
                fails(Code.INVALID_ARGUMENT, () -> client.get(id));
                List<Answer> answers = client.getMany(List.of(id(1), id, id(2)));
                equal(document(1), answers.get(0).text());
                equal(Kind.ERROR, answers.get(1).kind());
                isTrue(answers.get(1).error().getMessage().startsWith("ids[1] has "), answers.get(1).error().getMessage());
                equal(document(2), answers.get(2).text());
            }
            isTrue(client.get("x".repeat(1024)).isEmpty(), "the longest id");
            fails(NullPointerException.class, () -> client.get((String) null));
            fails(NullPointerException.class, () -> client.getMany(Collections.singletonList(null)));
        }
    }

    private static List<Tests.Body> calls(Client client) {
        return List.of(() -> client.get("a"), () -> client.getMany(List.of("a")), () -> client.scan("a").toList(), () -> client.scanIds("a").toList());
    }

    private void errors() throws Exception {
        try (Client client = Client.of("other", first().address).build()) {
            for (Tests.Body call : calls(client)) {
                fails(Code.NO_COLLECTION, call);
            }
        }
        try (Client client = Client.of("jobs", "127.0.0.1:1").maxRetries(1).build()) {
            for (Tests.Body call : calls(client)) {
                fails(Code.NO_SERVER, call);
            }
            fails(Code.DEADLINE_EXCEEDED, () -> client.withTimeout(Duration.ofMillis(50)).waitReady());
        }
        Daemon limited = serve(queue, "limited", "--rate", "1", "--rate-burst", "1");
        try (Client client = Client.of("jobs", limited.address).maxRetries(0).build()) {
            fails(Code.OVERLOADED, () -> {
                for (int i = 0; i < 100; i++) {
                    client.get(id(i));
                }
            });
        }
        try (Client client = Client.of("jobs", limited.address, first().address).build()) {
            client.waitReady();
            for (int i = 0; i < 20; i++) {
                equal(document(i), text(client.get(id(i)).get()));
            }
        }
        limited.end("TERM");
    }

    private void damaged() throws Exception {
        first();
        Path copy = Files.createDirectory(directory.resolve("copy"));
        try (Stream<Path> files = Files.list(queue)) {
            for (Path file : files.filter(Files::isRegularFile).toList()) {
                String content = Files.readString(file, StandardCharsets.ISO_8859_1); // a char for each byte
                boolean lock = file.getFileName().toString().equals("LOCK");
                if (!lock) {
                    Files.writeString(copy.resolve(file.getFileName()), content.replace(DAMAGED, "B" + DAMAGED.substring(1)), StandardCharsets.ISO_8859_1);
                }
            }
        }
        Daemon damaged = serve(copy, "damaged", "--quarantine=false");
        try (Client client = Client.of("jobs", damaged.address).build()) {
            fails(Code.UNAVAILABLE, () -> client.get(BYTES_ID));
            equal(List.of(Kind.UNAVAILABLE, Kind.FOUND), client.getMany(List.of("damaged", id(1))).stream().map(Answer::kind).toList());
            equal(Kind.UNAVAILABLE, client.scan(BYTES_ID, new byte[0]).findFirst().get().kind());
        }
        try (Client client = Client.of("jobs", damaged.address, first().address).build()) {
            client.waitReady();
            for (int i = 0; i < 5; i++) {
                equal(DAMAGED, text(client.get(BYTES_ID).get()));
                equal(DAMAGED, client.getMany(List.of(id(1), "damaged")).get(1).text());
            }
        }
        damaged.end("TERM");
    }

    private void tls() throws Exception {
        first();
        Path certificate = directory.resolve("cert.pem"), key = directory.resolve("key.pem"), tokens = directory.resolve("tokens");
        run("", "openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-subj", "/CN=docs",
                "-addext", "subjectAltName=IP:127.0.0.1", "-keyout", key.toString(), "-out", certificate.toString());
        Files.writeString(tokens, "frontend correct-horse-battery\n");
        Files.setPosixFilePermissions(tokens, java.nio.file.attribute.PosixFilePermissions.fromString("rw-------"));
        // A listener on a loopback address is without TLS; the client connects over loopback all the same.
        Daemon daemon = serve(queue, "tls", "--http", "0.0.0.0:0", "--http-lookup", "--tls-cert", certificate.toString(),
                "--tls-key", key.toString(), "--token-file", tokens.toString());
        String address = "127.0.0.1" + daemon.address.substring(daemon.address.lastIndexOf(':'));
        try (Client client = Client.of("jobs", address).ca(certificate).token(() -> "correct-horse-battery").build()) {
            client.waitReady();
            equal(document(7), text(client.get(id(7)).get()));
            equal(document(8), client.getMany(List.of(id(8))).get(0).text());
            equal(DOCUMENTS, client.scan("job-").toList().size());
        }
        try (Client client = Client.of("jobs", address).ca(certificate).token(() -> "wrong-horse-battery").build()) {
            for (Tests.Body call : calls(client)) {
                fails(Code.UNAUTHENTICATED, call);
            }
        }
        try (Client client = Client.of("jobs", address).tls(javax.net.ssl.SSLContext.getDefault()).maxRetries(0).build()) {
            fails(Code.NO_SERVER, () -> client.get("a")); // the certificate is not trusted
        }
        daemon.end("TERM");
    }

    private void ends() throws Exception {
        first();
        Daemon hangs = serve(queue, "hangs");
        ExecutorService threads = Executors.newCachedThreadPool();
        Client client = Client.of("jobs", hangs.address).timeout(Duration.ofSeconds(30)).attemptTimeout(Duration.ofSeconds(30)).build();
        client.waitReady();
        hangs.signal("STOP");
        for (Tests.Body call : calls(client.withTimeout(Duration.ofMillis(100)))) {
            fails(Code.DEADLINE_EXCEEDED, call);
        }
        CompletableFuture<Thread> caller = new CompletableFuture<>();
        Future<?> interrupted = threads.submit(() -> {
            caller.complete(Thread.currentThread());
            fails(Code.INTERRUPTED, () -> client.get("a"));
            isTrue(Thread.interrupted(), "the thread is still interrupted");
            return null;
        });
        caller.get().interrupt();
        interrupted.get();
        List<Future<?>> calls = new ArrayList<>();
        AtomicInteger begun = new AtomicInteger();
        for (Tests.Body call : calls(client)) {
            calls.add(threads.submit(() -> {
                begun.incrementAndGet();
                fails(Code.CLOSED, call);
                return null;
            }));
        }
        while (begun.get() < calls.size()) {
            Thread.sleep(1);
        }
        client.close();
        for (Future<?> call : calls) {
            call.get();
        }
        for (Tests.Body call : calls(client)) {
            fails(Code.CLOSED, call);
        }
        hangs.end("KILL");
        threads.shutdown();
    }

    private void manyCalls() throws Exception {
        ExecutorService threads = Executors.newFixedThreadPool(300);
        try (Client client = Client.of("jobs", first().address).timeout(Duration.ofSeconds(30)).attemptTimeout(Duration.ofSeconds(30)).build()) {
            List<Future<byte[]>> documents = new ArrayList<>();
            for (int i = 0; i < 900; i++) {
                int n = i;
                documents.add(threads.submit(() -> client.get(id(n)).get()));
            }
            for (int i = 0; i < 900; i++) {
                equal(document(i), text(documents.get(i).get()));
            }
        }
        threads.shutdown();
    }

    private void faults() throws Exception {
        first();
        Daemon server = serve(queue, "faults");
        String address = server.address;
        AtomicBoolean running = new AtomicBoolean(true);
        AtomicInteger calls = new AtomicInteger();
        ExecutorService threads = Executors.newCachedThreadPool();
        List<Future<?>> workers = new ArrayList<>();
        try (Client client = Client.of("jobs", first().address, address).attemptTimeout(Duration.ofMillis(500)).build()) {
            client.waitReady();
            for (int worker = 0; worker < 8; worker++) {
                int from = worker;
                workers.add(threads.submit(() -> {
                    for (int i = from; running.get(); i = (i + 8) % DOCUMENTS) {
                        if (i % 3 == 0) {
                            equal(document(i), text(client.get(id(i)).get()));
                        } else {
                            equal(document(i), client.getMany(List.of(id(i), "missing")).get(0).text());
                        }
                        calls.incrementAndGet();
                        Thread.sleep(1);
                    }
                    return null;
                }));
            }
            try {
                for (String with : List.of("KILL", "TERM", "KILL")) {
                    awaitCalls(calls);
                    server.end(with);
                    awaitCalls(calls);
                    server = serve(queue, "faults", "--http", address);
                    awaitHealthy(client, address);
                }
                server.signal("STOP"); // attempts end, and another server is asked
                Thread.sleep(1500);
                server.signal("CONT");
                awaitHealthy(client, address);
            } finally {
                running.set(false);
                for (Future<?> worker : workers) {
                    worker.get(); // throws the error of a call that failed
                }
                threads.shutdown();
            }
        }
        System.out.println("calls during faults: " + calls + ", 0 failed");
        server.end("TERM");
    }

    /** Waits until the workers have made some calls more, or one of them has ended. */
    private static void awaitCalls(AtomicInteger calls) throws Exception {
        int more = calls.get() + 100;
        for (int i = 0; i < 10_000 && calls.get() < more; i++) {
            Thread.sleep(1);
        }
    }

    private static void awaitHealthy(Client client, String address) throws Exception {
        for (int i = 0; i < 3_000 && !client.health().get(address); i++) {
            Thread.sleep(10);
        }
        isTrue(client.health().get(address), "the server that was started again is healthy");
    }
}
