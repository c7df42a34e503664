package docstore.client;

import java.nio.charset.StandardCharsets;

/** The answer for one id: a document, or that there is none, or an error. */
public final class Answer {
    /** The four kinds of answers. */
    public enum Kind {
        /** The document exists. */
        FOUND,
        /** The document does not exist. */
        ABSENT,
        /** The servers that were asked cannot read the document now. */
        UNAVAILABLE,
        /** Another error of this id, such as an invalid id. */
        ERROR
    }

    private final byte[] id;
    private final byte[] document;
    private final DocstoreException error;

    /** Makes an answer; without a document and an error, the document is absent. */
    Answer(byte[] id, byte[] document, DocstoreException error) {
        this.id = id;
        this.document = document;
        this.error = error;
    }

    /** Returns the kind of the answer. */
    public Kind kind() {
        if (error != null) {
            return error.code() == DocstoreException.Code.UNAVAILABLE ? Kind.UNAVAILABLE : Kind.ERROR;
        }
        return document != null ? Kind.FOUND : Kind.ABSENT;
    }

    /** Returns the id. Bytes that are not UTF-8 are replaced: see {@link #idBytes}. */
    public String id() {
        return new String(id, StandardCharsets.UTF_8);
    }

    /** Returns the bytes of the id. */
    public byte[] idBytes() {
        return id.clone();
    }

    /** Returns the bytes of the document, as they were appended, or null. The caller owns them. */
    public byte[] document() {
        return document;
    }

    /** Returns the document as a string, or null. */
    public String text() {
        return document == null ? null : new String(document, StandardCharsets.UTF_8);
    }

    /** Returns the error of this id, or null. */
    public DocstoreException error() {
        return error;
    }

    @Override
    public String toString() {
        return id() + ": " + kind() + (error == null ? "" : ": " + error.getMessage());
    }
}
