package docstore.client;

import docstore.client.Balancer.Health;
import docstore.client.Balancer.Server;
import docstore.client.DocstoreException.Code;
import java.io.IOException;
import java.net.URI;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpResponse;
import java.time.Duration;
import java.util.HashSet;
import java.util.Set;
import java.util.concurrent.CancellationException;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.Semaphore;
import java.util.concurrent.ThreadLocalRandom;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;

/** Sends the calls of a client to its servers, and watches their health. */
final class Calls implements AutoCloseable {
    /** Calls in flight of a client. With HTTP/1.1 each has a connection, of which a server permits a client 128. */
    static final int MAX_IN_FLIGHT = 99;

    private static final Duration HEALTH_TIMEOUT = Duration.ofSeconds(1);
    private static final long HEALTHY_POLL_MILLIS = 1000;
    private static final long UNHEALTHY_POLL_MILLIS = 250;
    private static final long RETRY_DELAY_NANOS = 25_000_000; // before the servers are asked again; doubles
    private static final int MAX_DOUBLINGS = 10;

    /** The request of a call: a path and, for POST, a body. */
    record Request(String path, byte[] body) {}

    /** The response to a call: its status is 200, or 404 with the code not_found. */
    record Response(Server server, int status, byte[] body) {}

    final Balancer balancer;
    private final Client.Builder options;
    private final HttpClient http;
    private final Semaphore places = new Semaphore(MAX_IN_FLIGHT, true);
    private final Set<CompletableFuture<?>> inFlight = ConcurrentHashMap.newKeySet();
    private volatile boolean closed;

    Calls(Client.Builder options) {
        this.options = options;
        this.balancer = new Balancer(options.servers, System::nanoTime, () -> ThreadLocalRandom.current().nextDouble());
        HttpClient.Builder builder = HttpClient.newBuilder().connectTimeout(options.attemptTimeout);
        if (options.tls == null) {
            builder.version(HttpClient.Version.HTTP_1_1); // the server does not upgrade plain text to HTTP/2
        } else {
            builder.sslContext(options.tls);
        }
        this.http = builder.build();
        balancer.servers.forEach(this::watch);
    }

    /** Asks a server for its health, again and again. */
    private void watch(Server server) {
        HttpRequest request = HttpRequest.newBuilder(uri(server, "/readyz?draining=503")).timeout(HEALTH_TIMEOUT).build();
        http.sendAsync(request, HttpResponse.BodyHandlers.discarding()).whenComplete((response, failure) -> {
            Health health = failure != null ? Health.UNKNOWN : switch (response.statusCode()) {
                case 200 -> Health.SERVING;
                case 503 -> Health.NOT_SERVING;
                default -> Health.UNKNOWN;
            };
            balancer.setHealth(server, health);
            long pause = health == Health.SERVING ? HEALTHY_POLL_MILLIS : UNHEALTHY_POLL_MILLIS;
            if (!closed) {
                CompletableFuture.delayedExecutor(pause, TimeUnit.MILLISECONDS).execute(() -> watch(server));
            }
        });
    }

    private URI uri(Server server, String path) {
        return URI.create((options.tls == null ? "http://" : "https://") + server.address + path);
    }

    /** Throws the error of a call that has ended. */
    void check(long deadline) {
        if (closed) {
            throw new DocstoreException(Code.CLOSED, "the client is closed");
        }
        if (System.nanoTime() - deadline >= 0) {
            throw new DocstoreException(Code.DEADLINE_EXCEEDED, "the time of the call has ended");
        }
    }

    /** Sends a request until a server answers it; not to servers in avoid if there are others. */
    Response call(Request request, long deadline, Set<Server> avoid) {
        Set<Server> tried = new HashSet<>(avoid);
        balancer.countCall();
        try {
            for (int attempt = 0;; attempt++) {
                check(deadline);
                if (!places.tryAcquire(deadline - System.nanoTime(), TimeUnit.NANOSECONDS)) {
                    check(deadline);
                    continue; // the deadline is now
                }
                Server server = balancer.begin(tried);
                try {
                    return attempt(server, request, deadline);
                } catch (DocstoreException e) {
                    boolean retried = switch (e.code()) {
                        case UNAVAILABLE, NO_SERVER, OVERLOADED, DEADLINE_EXCEEDED -> true; // all requests only read
                        default -> false;
                    };
                    if (!retried || attempt >= options.maxRetries || System.nanoTime() - deadline >= 0 || !balancer.mayRetry()) {
                        throw e;
                    }
                } finally {
                    balancer.end(server);
                    places.release();
                }
                tried.add(server);
                if (tried.size() >= balancer.servers.size()) {
                    tried.clear();
                    double factor = Math.pow(2, Math.min(attempt, MAX_DOUBLINGS)) * (0.5 + ThreadLocalRandom.current().nextDouble());
                    long pause = Math.min((long) (RETRY_DELAY_NANOS * factor), deadline - System.nanoTime());
                    TimeUnit.NANOSECONDS.sleep(pause); // returns at once if it is negative
                }
            }
        } catch (InterruptedException e) {
            Thread.currentThread().interrupt();
            throw new DocstoreException(Code.INTERRUPTED, "the thread was interrupted", e);
        }
    }

    /** Sends a request to one server and records what that says about the server. */
    private Response attempt(Server server, Request request, long deadline) throws InterruptedException {
        HttpRequest.Builder builder = HttpRequest.newBuilder(uri(server, request.path));
        if (request.body != null) {
            builder.POST(HttpRequest.BodyPublishers.ofByteArray(request.body));
        }
        if (options.token != null) {
            builder.header("Authorization", "Bearer " + options.token.get());
        }
        if (options.batch) {
            builder.header("Priority", "u=7");
        }
        long left = deadline - System.nanoTime();
        long limit = Math.min(options.attemptTimeout.toNanos(), left);
        CompletableFuture<HttpResponse<byte[]>> sent = http.sendAsync(builder.build(), HttpResponse.BodyHandlers.ofByteArray());
        inFlight.add(sent);
        try {
            if (closed) { // close may not have seen the call
                sent.cancel(true);
            }
            HttpResponse<byte[]> response = sent.get(limit, TimeUnit.NANOSECONDS);
            DocstoreException error = errorOf(server, response);
            if (error != null && error.code() == Code.OVERLOADED) {
                balancer.refused(server);
            } else {
                balancer.answered(server);
            }
            if (error != null) {
                throw error;
            }
            return new Response(server, response.statusCode(), response.body());
        } catch (TimeoutException e) {
            if (limit < left) { // else the call had too little time
                balancer.lost(server);
            }
            throw new DocstoreException(Code.DEADLINE_EXCEEDED, server.address + " did not answer in time", e);
        } catch (ExecutionException e) {
            check(deadline);
            if (!(e.getCause() instanceof IOException)) {
                throw new DocstoreException(Code.SERVER, server.address + ": " + e.getCause(), e.getCause());
            }
            balancer.lost(server);
            throw new DocstoreException(Code.NO_SERVER, server.address + ": " + e.getCause(), e.getCause());
        } catch (CancellationException e) {
            throw new DocstoreException(Code.CLOSED, "the client is closed", e);
        } finally {
            sent.cancel(true); // ends the request, if it has not ended
            inFlight.remove(sent);
        }
    }

    /** Returns the error of a response; null: none. */
    private static DocstoreException errorOf(Server server, HttpResponse<byte[]> response) {
        if (response.statusCode() == 200) {
            return null;
        }
        String[] error;
        try {
            error = Json.error(response.body());
        } catch (Json.MalformedException e) {
            String problem = server.address + ": the response has status " + response.statusCode() + " and is not that of a docserviced";
            return new DocstoreException(Code.SERVER, problem, e);
        }
        boolean absent = response.statusCode() == 404 && error[0].equals("not_found");
        return absent ? null : new DocstoreException(Json.codeOf(error[0]), server.address + ": " + error[1]);
    }

    @Override
    public void close() {
        closed = true;
        inFlight.forEach(sent -> sent.cancel(true));
    }
}
