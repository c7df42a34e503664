package docstore.client;

import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.function.DoubleSupplier;
import java.util.function.LongSupplier;

/** Chooses the servers of calls. Its methods may be called by several threads. */
final class Balancer {
    static final long PAUSE_NANOS = 100_000_000L; // after the first failure; doubles
    static final long MAX_PAUSE_NANOS = 5_000_000_000L;
    private static final int MAX_DOUBLINGS = 10;

    /** The health of a server, as it reports it. */
    enum Health { SERVING, UNKNOWN, NOT_SERVING }

    /** The state of a server. The balancer guards it. */
    static final class Server {
        final String address;
        Health health = Health.UNKNOWN;
        int inFlight;
        int failures; // in a row
        boolean paused;
        long pausedUntil; // if paused

        Server(String address) {
            this.address = address;
        }

        /** Orders servers: 0 healthy, 1 of unknown health, 2 not serving or paused. */
        int rank(long now) {
            if (health == Health.NOT_SERVING || paused && now - pausedUntil < 0) {
                return 2;
            }
            return health == Health.SERVING ? 0 : 1;
        }
    }

    final List<Server> servers;
    private final LongSupplier clock;
    private final DoubleSupplier random;
    private final RetryBudget budget;

    /** clock returns nanoseconds of any origin, random numbers from 0 to less than 1. */
    Balancer(List<String> addresses, LongSupplier clock, DoubleSupplier random) {
        this.servers = addresses.stream().map(Server::new).toList();
        this.clock = clock;
        this.random = random;
        this.budget = new RetryBudget(clock.getAsLong());
    }

    /**
     * Returns the server of an attempt: of two random ones of the best rank that with fewer attempts in flight. Servers
     * in tried are used if there is no other one. The caller calls end.
     */
    synchronized Server begin(Set<Server> tried) {
        long now = clock.getAsLong();
        List<Server> candidates = new ArrayList<>(servers);
        candidates.removeAll(tried);
        if (candidates.isEmpty()) {
            candidates = new ArrayList<>(servers);
        }
        int best = candidates.stream().mapToInt(s -> s.rank(now)).min().getAsInt();
        candidates.removeIf(s -> s.rank(now) != best);
        int n = candidates.size();
        int first = (int) (random.getAsDouble() * n);
        int second = (first + 1 + (int) (random.getAsDouble() * (n - 1))) % n;
        Server server = candidates.get(second).inFlight < candidates.get(first).inFlight ? candidates.get(second) : candidates.get(first);
        server.inFlight++;
        return server;
    }

    /** Ends an attempt that began. */
    synchronized void end(Server server) {
        server.inFlight--;
    }

    /** Records that a server answered. */
    synchronized void answered(Server server) {
        server.failures = 0;
        server.paused = false;
    }

    /** Pauses a server that refused a call because of its load. */
    synchronized void refused(Server server) {
        double pause = Math.min(MAX_PAUSE_NANOS, PAUSE_NANOS * Math.pow(2, Math.min(server.failures, MAX_DOUBLINGS)));
        server.failures++;
        server.paused = true;
        server.pausedUntil = clock.getAsLong() + (long) (pause * (0.75 + random.getAsDouble() / 2));
    }

    /** Pauses a server that was not reached or did not answer in time, until its health is known again or the pause ends. */
    synchronized void lost(Server server) {
        server.health = Health.UNKNOWN;
        refused(server);
    }

    /** Records the health of a server. A server that serves again is not paused. */
    synchronized void setHealth(Server server, Health health) {
        if (health == Health.SERVING && server.health != Health.SERVING) {
            server.paused = false;
        }
        server.health = health;
        notifyAll();
    }

    /** Returns whether each server is known to be healthy. */
    synchronized Map<String, Boolean> healthy() {
        Map<String, Boolean> healthy = new LinkedHashMap<>();
        servers.forEach(s -> healthy.put(s.address, s.health == Health.SERVING));
        return healthy;
    }

    /** Waits at most until the deadline for a healthy server, and reports whether there is one. */
    synchronized boolean awaitHealthy(long deadline) throws InterruptedException {
        while (servers.stream().noneMatch(s -> s.health == Health.SERVING)) {
            long left = deadline - clock.getAsLong();
            if (left <= 0) {
                return false;
            }
            wait(left / 1_000_000 + 1);
        }
        return true;
    }

    /** Counts a call for the budget of retries. */
    synchronized void countCall() {
        budget.call();
    }

    /** Reports whether the budget permits a retry, and counts it. */
    synchronized boolean mayRetry() {
        return budget.take(clock.getAsLong());
    }
}
