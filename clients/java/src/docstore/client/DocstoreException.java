package docstore.client;

/** A call or the request for one document failed. */
public final class DocstoreException extends RuntimeException {
    private static final long serialVersionUID = 1;

    /** The kind of an error. */
    public enum Code {
        /** The document exists or may exist, but the servers that were asked cannot read it now. */
        UNAVAILABLE,
        /** No server answered. */
        NO_SERVER,
        /** An id is invalid, or the server refused another argument. */
        INVALID_ARGUMENT,
        /** The server does not serve the collection. */
        NO_COLLECTION,
        /** The collection is divided into shards, and the server does not have the shard of the id. */
        MOVED,
        /** The servers refused the call because they have too much load. */
        OVERLOADED,
        /** The time of the call ended. */
        DEADLINE_EXCEEDED,
        /** The server does not accept the token or certificate. */
        UNAUTHENTICATED,
        /** The client may not read the collection, or the server does not serve documents over HTTP. */
        FORBIDDEN,
        /** The thread of the call was interrupted; it still is. */
        INTERRUPTED,
        /** The client is closed. */
        CLOSED,
        /** The server failed or its answer is malformed; see its log. */
        SERVER
    }

    private final Code code;

    DocstoreException(Code code, String message) {
        super(message);
        this.code = code;
    }

    DocstoreException(Code code, String message, Throwable cause) {
        super(message, cause);
        this.code = code;
    }

    /** Returns the kind of the error. */
    public Code code() {
        return code;
    }

    @Override
    public String toString() {
        return getClass().getName() + ": " + code + ": " + getMessage();
    }
}
