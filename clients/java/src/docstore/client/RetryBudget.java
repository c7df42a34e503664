package docstore.client;

/**
 * Limits retries to a fifth of the calls and ten a second, so that retries do not multiply the load of servers that
 * fail. The caller synchronizes.
 */
final class RetryBudget {
    static final double RATIO = 0.2;
    static final double PER_SECOND = 10;
    static final double MOST = 64;

    private double tokens = MOST;
    private long at;

    RetryBudget(long nowNanos) {
        at = nowNanos;
    }

    /** Counts a call. */
    void call() {
        tokens = Math.min(MOST, tokens + RATIO);
    }

    /** Reports whether a call may be tried again, and counts the retry. */
    boolean take(long nowNanos) {
        tokens = Math.min(MOST, tokens + Math.max(0, nowNanos - at) / 1e9 * PER_SECOND);
        at = nowNanos;
        if (tokens < 1) {
            return false;
        }
        tokens--;
        return true;
    }
}
