package docstore.client;

import docstore.client.Balancer.Server;
import docstore.client.Calls.Request;
import docstore.client.Calls.Response;
import docstore.client.DocstoreException.Code;
import java.io.ByteArrayOutputStream;
import java.io.IOException;
import java.io.InputStream;
import java.net.URI;
import java.nio.CharBuffer;
import java.nio.charset.CharacterCodingException;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.security.GeneralSecurityException;
import java.security.KeyStore;
import java.security.cert.Certificate;
import java.security.cert.CertificateFactory;
import java.time.Duration;
import java.util.ArrayDeque;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collection;
import java.util.HashSet;
import java.util.Iterator;
import java.util.List;
import java.util.Map;
import java.util.NoSuchElementException;
import java.util.Objects;
import java.util.Optional;
import java.util.Queue;
import java.util.Set;
import java.util.Spliterator;
import java.util.Spliterators;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CompletionException;
import java.util.concurrent.ConcurrentLinkedQueue;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.function.Function;
import java.util.function.Supplier;
import java.util.stream.Stream;
import java.util.stream.StreamSupport;
import javax.net.ssl.SSLContext;
import javax.net.ssl.TrustManagerFactory;

/**
 * Fetches documents of one collection from several servers.
 *
 * <pre>{@code
 * try (Client jobs = Client.of("jobs", "docs-1:7071", "docs-2:7071").build()) {
 *     Optional<byte[]> document = jobs.get("4711"); // empty: it does not exist
 *     for (Answer answer : jobs.getMany(ids)) ...
 *     jobs.scan("acme-").limit(10).forEach(answer -> ...);
 * }
 * }</pre>
 *
 * <p>Create one client per collection and keep it. Threads may share it. Each call goes to a healthy server, the less
 * busy of two. A call that is refused, cannot be answered, or is not answered within the timeout of an attempt is sent
 * to another server, within the deadline and a retry budget. Methods throw {@link DocstoreException}.
 */
public final class Client implements AutoCloseable {
    /** Maximum size of an id, in bytes of UTF-8. */
    public static final int MAX_ID_BYTES = 1024;

    private static final int MAX_BATCH_IDS = 16_384;
    private static final int MAX_BODY_BYTES = 4 << 20;
    private static final int CONCURRENCY = 4; // concurrent requests of one getMany
    private static final int PAGE_DOCUMENTS = 500; // of a scan
    private static final int PAGE_IDS = 1_000;

    private final Builder options;
    private final String collection; // escaped
    private final Duration timeout;
    private final Calls calls;
    private final ExecutorService batches;

    private Client(Builder options) {
        this.options = options;
        this.collection = escape(options.collection.getBytes(StandardCharsets.UTF_8));
        this.timeout = options.timeout;
        this.calls = new Calls(options);
        this.batches = Executors.newCachedThreadPool(task -> {
            Thread thread = new Thread(task, "docstore-client");
            thread.setDaemon(true);
            return thread;
        });
    }

    private Client(Client other, Duration timeout) {
        this.options = other.options;
        this.collection = other.collection;
        this.timeout = positive("timeout", timeout);
        this.calls = other.calls;
        this.batches = other.batches;
    }

    /** Returns a builder of a client of a collection. Servers are addresses HOST:PORT of {@code --http}. */
    public static Builder of(String collection, String... servers) {
        return new Builder(collection, List.of(servers));
    }

    /** Returns a client that has another timeout and shares all else, so that it must not be closed. */
    public Client withTimeout(Duration timeout) {
        return new Client(this, timeout);
    }

    /** Returns a document, as it was appended, or empty if it does not exist. */
    public Optional<byte[]> get(String id) {
        return get(utf8("id", id));
    }

    /** Returns the document with an id that need not be UTF-8. */
    public Optional<byte[]> get(byte[] id) {
        DocstoreException invalid = checkID("id", id);
        if (invalid != null) {
            throw invalid;
        }
        Response response = calls.call(new Request("/documents/" + collection + "/" + escape(id), null), deadline(), Set.of());
        return response.status() == 200 ? Optional.of(response.body()) : Optional.empty();
    }

    /** Returns an answer for each id, in the order of the ids. */
    public List<Answer> getMany(Collection<String> ids) {
        long deadline = deadline();
        List<byte[]> keys = new ArrayList<>(ids.size());
        Answer[] answers = new Answer[ids.size()];
        List<Integer> valid = new ArrayList<>(ids.size());
        for (String id : ids) {
            int i = keys.size();
            byte[] key = new byte[0];
            DocstoreException invalid;
            try {
                key = utf8("ids[" + i + "]", id);
                invalid = checkID("ids[" + i + "]", key);
            } catch (DocstoreException e) {
                invalid = e;
            }
            keys.add(key);
            answers[i] = new Answer(key, null, invalid);
            if (invalid == null) {
                valid.add(i);
            }
        }
        calls.check(deadline);
        Queue<List<Integer>> waiting = new ConcurrentLinkedQueue<>(split(keys, valid, options.batchIDs));
        Runnable worker = () -> {
            try {
                for (List<Integer> batch = waiting.poll(); batch != null; batch = waiting.poll()) {
                    fetch(keys, batch, answers, deadline);
                }
            } finally {
                waiting.clear(); // after an error the others end, too
            }
        };
        List<CompletableFuture<Void>> workers = new ArrayList<>();
        for (int i = Math.min(CONCURRENCY, waiting.size()); i > 1; i--) {
            workers.add(CompletableFuture.runAsync(worker, batches));
        }
        worker.run();
        try {
            workers.forEach(CompletableFuture::join);
        } catch (CompletionException e) {
            throw e.getCause() instanceof DocstoreException failed ? failed : e;
        }
        return Arrays.asList(answers);
    }

    /** Splits indexes of ids into requests of at most batchIDs ids and MAX_BODY_BYTES. */
    static List<List<Integer>> split(List<byte[]> ids, List<Integer> indexes, int batchIDs) {
        List<List<Integer>> all = new ArrayList<>();
        List<Integer> batch = new ArrayList<>();
        int size = 2;
        for (int i : indexes) {
            int more = Json.id(ids.get(i)).length + 1;
            if (batch.size() == batchIDs || size + more > MAX_BODY_BYTES) {
                all.add(batch);
                batch = new ArrayList<>();
                size = 2;
            }
            batch.add(i);
            size += more;
        }
        if (!batch.isEmpty()) {
            all.add(batch);
        }
        return all;
    }

    /** Sets the answers for the ids at the indexes. Ids that a server cannot read are requested from another one. */
    private void fetch(List<byte[]> ids, List<Integer> indexes, Answer[] answers, long deadline) {
        Set<Server> asked = new HashSet<>();
        for (int attempt = 0;; attempt++) {
            List<Integer> unavailable = new ArrayList<>();
            try {
                asked.add(fetchFrom(asked, ids, indexes, answers, deadline));
            } catch (DocstoreException e) {
                if (e.code() != Code.UNAVAILABLE) {
                    throw e;
                }
                indexes.forEach(i -> answers[i] = new Answer(ids.get(i), null, e)); // no server has any of them
                return;
            }
            for (int i : indexes) {
                if (answers[i].kind() == Answer.Kind.UNAVAILABLE) {
                    unavailable.add(i);
                }
            }
            boolean others = asked.size() < calls.balancer.servers.size();
            if (unavailable.isEmpty() || !others || attempt == options.maxRetries || System.nanoTime() - deadline >= 0 || !calls.balancer.mayRetry()) {
                return;
            }
            indexes = unavailable;
        }
    }

    /** Sets the answers for the ids at the indexes and returns the server that gave them. */
    private Server fetchFrom(Set<Server> avoid, List<byte[]> ids, List<Integer> indexes, Answer[] answers, long deadline) {
        ByteArrayOutputStream body = new ByteArrayOutputStream();
        for (int i : indexes) {
            body.write(body.size() == 0 ? '[' : ',');
            body.writeBytes(Json.id(ids.get(i)));
        }
        body.write(']');
        Response response = calls.call(new Request("/documents/" + collection, body.toByteArray()), deadline, avoid);
        List<Answer> lines = lines(response);
        if (lines.size() != indexes.size()) {
            throw new DocstoreException(Code.SERVER, response.server().address + ": " + lines.size() + " answers for " + indexes.size() + " ids");
        }
        for (int i = 0; i < lines.size(); i++) {
            int index = indexes.get(i);
            if (!Arrays.equals(lines.get(i).idBytes(), ids.get(index))) {
                throw new DocstoreException(Code.SERVER, response.server().address + ": the answer for another id");
            }
            answers[index] = lines.get(i);
        }
        return response.server();
    }

    /** Parses a response with an answer a line. */
    private static List<Answer> lines(Response response) {
        byte[] body = response.body();
        List<Answer> answers = new ArrayList<>();
        try {
            for (int from = 0, to; from < body.length; from = to + 1) {
                to = from;
                while (to < body.length && body[to] != '\n') {
                    to++;
                }
                answers.add(Json.answer(body, from, to));
            }
        } catch (Json.MalformedException e) {
            throw new DocstoreException(Code.SERVER, response.server().address + ": " + e.getMessage(), e);
        }
        return answers;
    }

    /**
     * Returns the documents whose ids begin with the prefix, in the order of the bytes of their ids. The stream fetches
     * 500 documents at a time, each time with the timeout of the client; each page is of one moment.
     */
    public Stream<Answer> scan(String prefix) {
        return scan(utf8("prefix", prefix), new byte[0]);
    }

    /** Returns the documents whose ids begin with the prefix and come after an id; empty: all of them. */
    public Stream<Answer> scan(byte[] prefix, byte[] after) {
        return new Pages<>("export", PAGE_DOCUMENTS, Client::lines, Answer::idBytes, prefix, after).stream();
    }

    /** Returns the ids that {@link #scan(String)} returns, without the documents, 1,000 at a time. */
    public Stream<String> scanIds(String prefix) {
        return scanIds(utf8("prefix", prefix), new byte[0]).map(id -> new String(id, StandardCharsets.UTF_8));
    }

    /** Returns the ids that {@link #scan(byte[], byte[])} returns, without the documents. */
    public Stream<byte[]> scanIds(byte[] prefix, byte[] after) {
        return new Pages<byte[]>("ids", PAGE_IDS, Client::ids, byte[]::clone, prefix, after).stream();
    }

    /** Parses a page of ids. */
    private static List<byte[]> ids(Response response) {
        try {
            return Json.ids(response.body());
        } catch (Json.MalformedException e) {
            throw new DocstoreException(Code.SERVER, response.server().address + ": " + e.getMessage(), e);
        }
    }

    /** The elements of the pages of a list. */
    private final class Pages<T> implements Iterator<T> {
        private final String path;
        private final int limit; // of a page
        private final Function<Response, List<T>> parse;
        private final Function<T, byte[]> idOf;
        private final Queue<T> page = new ArrayDeque<>();
        private byte[] after;
        private boolean last;

        Pages(String list, int limit, Function<Response, List<T>> parse, Function<T, byte[]> idOf, byte[] prefix, byte[] after) {
            this.path = "/collections/" + collection + "/" + list + "?limit=" + limit + "&prefix=" + escape(prefix) + "&after=";
            this.limit = limit;
            this.parse = parse;
            this.idOf = idOf;
            this.after = after.clone();
        }

        Stream<T> stream() {
            int properties = Spliterator.ORDERED | Spliterator.NONNULL | Spliterator.DISTINCT;
            return StreamSupport.stream(Spliterators.spliteratorUnknownSize(this, properties), false);
        }

        @Override
        public boolean hasNext() {
            if (page.isEmpty() && !last) {
                page.addAll(parse.apply(calls.call(new Request(path + escape(after), null), deadline(), Set.of())));
                last = page.size() < limit;
            }
            return !page.isEmpty();
        }

        @Override
        public T next() {
            if (!hasNext()) {
                throw new NoSuchElementException();
            }
            T one = page.remove();
            after = idOf.apply(one);
            return one;
        }
    }

    /** Waits until a server is healthy. Calls before that go to servers of unknown health. */
    public void waitReady() {
        try {
            if (!calls.balancer.awaitHealthy(deadline())) {
                throw new DocstoreException(Code.DEADLINE_EXCEEDED, "no server is healthy");
            }
        } catch (InterruptedException e) {
            Thread.currentThread().interrupt();
            throw new DocstoreException(Code.INTERRUPTED, "the thread was interrupted", e);
        }
    }

    /** Returns whether each server is known to be healthy. */
    public Map<String, Boolean> health() {
        return calls.balancer.healthy();
    }

    /** Ends the calls in flight with an error. */
    @Override
    public void close() {
        calls.close(); // the idle threads of batches end after a minute
    }

    private long deadline() {
        return System.nanoTime() + timeout.toNanos();
    }

    private static DocstoreException checkID(String name, byte[] id) {
        if (id.length >= 1 && id.length <= MAX_ID_BYTES) {
            return null;
        }
        return new DocstoreException(Code.INVALID_ARGUMENT, name + " has " + id.length + " bytes: want 1 to " + MAX_ID_BYTES);
    }

    private static byte[] utf8(String name, String text) {
        try {
            var bytes = StandardCharsets.UTF_8.newEncoder().encode(CharBuffer.wrap(Objects.requireNonNull(text, name)));
            return Arrays.copyOf(bytes.array(), bytes.limit());
        } catch (CharacterCodingException e) {
            throw new DocstoreException(Code.INVALID_ARGUMENT, name + " has an unpaired surrogate", e);
        }
    }

    /** Escapes bytes for a path or a query, also the dots that would be a path of another directory. */
    static String escape(byte[] bytes) {
        StringBuilder out = new StringBuilder();
        for (byte b : bytes) {
            boolean plain = b >= 'a' && b <= 'z' || b >= 'A' && b <= 'Z' || b >= '0' && b <= '9' || b == '-' || b == '_';
            out.append(plain ? String.valueOf((char) b) : String.format("%%%02X", b));
        }
        return out.toString();
    }

    private static Duration positive(String name, Duration value) {
        if (value.isNegative() || value.isZero() || value.compareTo(Duration.ofDays(1)) > 0) {
            throw new IllegalArgumentException(name + " is " + value + ": want more than 0 and at most a day");
        }
        return value;
    }

    private static int inRange(String name, int value, int least, int most) {
        if (value < least || value > most) {
            throw new IllegalArgumentException(name + " is " + value + ": want " + least + " to " + most);
        }
        return value;
    }

    /** The options of a client. It makes one client. */
    public static final class Builder {
        final String collection;
        final List<String> servers;
        Duration timeout = Duration.ofSeconds(5);
        Duration attemptTimeout = Duration.ofSeconds(1);
        int maxRetries = 3;
        int batchIDs = 500;
        boolean batch;
        Supplier<String> token;
        SSLContext tls;

        private Builder(String collection, List<String> servers) {
            if (collection.isEmpty() || servers.isEmpty()) {
                throw new IllegalArgumentException("the collection or the servers are missing");
            }
            if (new HashSet<>(servers).size() < servers.size()) {
                throw new IllegalArgumentException("the servers " + servers + " contain an address twice");
            }
            for (String address : servers) {
                URI uri = URI.create("http://" + address);
                if (uri.getHost() == null || uri.getPort() < 0 || !uri.getAuthority().equals(address) || uri.getUserInfo() != null) {
                    throw new IllegalArgumentException("the server " + address + " is not an address HOST:PORT");
                }
            }
            this.collection = collection;
            this.servers = servers;
        }

        /** Sets the time of a call of a method; the default is 5 seconds. */
        public Builder timeout(Duration timeout) {
            this.timeout = positive("timeout", timeout);
            return this;
        }

        /** Sets the time after which another server is asked; the default is a second. */
        public Builder attemptTimeout(Duration attemptTimeout) {
            this.attemptTimeout = positive("attemptTimeout", attemptTimeout);
            return this;
        }

        /** Sets the maximum number of retries of a call; the default is 3. */
        public Builder maxRetries(int maxRetries) {
            this.maxRetries = inRange("maxRetries", maxRetries, 0, 100);
            return this;
        }

        /** Sets the maximum number of ids of a request; the default is 500. A response is held in memory. */
        public Builder batchIDs(int batchIDs) {
            this.batchIDs = inRange("batchIDs", batchIDs, 1, MAX_BATCH_IDS);
            return this;
        }

        /** Makes the calls background work, which overloaded servers refuse first, as they do scans. */
        public Builder batch() {
            this.batch = true;
            return this;
        }

        /** Uses TLS with this context, for example one with a certificate of the client. */
        public Builder tls(SSLContext tls) {
            this.tls = tls;
            return this;
        }

        /** Uses TLS and trusts the certificates in a PEM file. */
        public Builder ca(Path pem) throws IOException, GeneralSecurityException {
            KeyStore trusted = KeyStore.getInstance(KeyStore.getDefaultType());
            trusted.load(null, null);
            try (InputStream in = Files.newInputStream(pem)) {
                for (Certificate certificate : CertificateFactory.getInstance("X.509").generateCertificates(in)) {
                    trusted.setCertificateEntry(String.valueOf(trusted.size()), certificate);
                }
            }
            TrustManagerFactory trust = TrustManagerFactory.getInstance(TrustManagerFactory.getDefaultAlgorithm());
            trust.init(trusted);
            SSLContext context = SSLContext.getInstance("TLS");
            context.init(null, trust.getTrustManagers(), null);
            return tls(context);
        }

        /** Sends the token that the supplier returns with each request; needs TLS. */
        public Builder token(Supplier<String> token) {
            this.token = token;
            return this;
        }

        /** Returns the client. It does not wait for servers. */
        public Client build() {
            if (token != null && tls == null) {
                throw new IllegalArgumentException("a token is not sent in plain text: set ca or tls");
            }
            return new Client(this);
        }
    }
}
