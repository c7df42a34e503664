package docstore.client;

import java.io.ByteArrayOutputStream;
import java.nio.ByteBuffer;
import java.nio.charset.CharacterCodingException;
import java.nio.charset.CodingErrorAction;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Base64;
import java.util.HashMap;
import java.util.List;
import java.util.Map;

/** The JSON of requests and responses. */
final class Json {
    /** The input is not the expected JSON. */
    static final class MalformedException extends Exception {
        private static final long serialVersionUID = 1;

        MalformedException(String message) {
            super(message);
        }
    }

    private static final int MAX_DEPTH = 10_000; // arrays and objects in each other, as the server permits

    private final byte[] input;
    private final int end;
    private int at;

    private Json(byte[] input, int from, int to) {
        this.input = input;
        this.at = from;
        this.end = to;
    }

    /** Returns an id as a JSON value: a string, or {"id_base64":"..."} if it is not UTF-8. */
    static byte[] id(byte[] id) {
        try {
            return string(utf8(id));
        } catch (CharacterCodingException notText) {
            return ("{\"id_base64\":\"" + Base64.getEncoder().encodeToString(id) + "\"}").getBytes(StandardCharsets.US_ASCII);
        }
    }

    private static byte[] string(String text) {
        StringBuilder out = new StringBuilder("\"");
        for (int i = 0; i < text.length(); i++) {
            char c = text.charAt(i);
            if (c == '"' || c == '\\') {
                out.append('\\').append(c);
            } else if (c < ' ') {
                out.append(String.format("\\u%04x", (int) c));
            } else {
                out.append(c);
            }
        }
        return out.append('"').toString().getBytes(StandardCharsets.UTF_8);
    }

    private static String utf8(byte[] bytes) throws CharacterCodingException {
        return StandardCharsets.UTF_8.newDecoder().onMalformedInput(CodingErrorAction.REPORT)
                .onUnmappableCharacter(CodingErrorAction.REPORT).decode(ByteBuffer.wrap(bytes)).toString();
    }

    /** Parses a line of a batch or an export. */
    static Answer answer(byte[] input, int from, int to) throws MalformedException {
        Map<String, byte[]> fields = fields(input, from, to);
        byte[] id = fields.containsKey("id_base64") ? base64Of(fields.get("id_base64")) : bytesOf(fields.get("id"));
        if (isTrue(fields.get("found"))) {
            byte[] document = fields.get("document");
            return new Answer(id, document != null ? document : base64Of(fields.get("document_base64")), null);
        }
        if (!fields.containsKey("code")) {
            return new Answer(id, null, null);
        }
        return new Answer(id, null, new DocstoreException(codeOf(textOf(fields.get("code"))), textOf(fields.get("error"))));
    }

    /** Parses the body of an error response, {"error":{"code":"...","message":"..."}}, and returns code and message. */
    static String[] error(byte[] body) throws MalformedException {
        byte[] error = fields(body, 0, body.length).get("error");
        if (error == null) {
            throw new MalformedException("no error");
        }
        Map<String, byte[]> fields = fields(error, 0, error.length);
        return new String[] {textOf(fields.get("code")), textOf(fields.get("message"))};
    }

    /** Parses a page of ids, {"ids":["a",{"id_base64":"..."}],...}. */
    static List<byte[]> ids(byte[] body) throws MalformedException {
        byte[] list = fields(body, 0, body.length).get("ids");
        if (list == null) {
            throw new MalformedException("no ids");
        }
        List<byte[]> ids = new ArrayList<>();
        Json json = new Json(list, 0, list.length);
        json.expect('[');
        json.space();
        if (json.peek() != ']') {
            do {
                json.space();
                byte[] id = json.value();
                ids.add(id[0] == '{' ? base64Of(fields(id, 0, id.length).get("id_base64")) : bytesOf(id));
                json.space();
            } while (json.accept(','));
        }
        json.expect(']');
        return ids;
    }

    /** Returns the code of the client for one of the server. */
    static DocstoreException.Code codeOf(String code) {
        return switch (code) {
            case "unavailable", "request_timeout" -> DocstoreException.Code.UNAVAILABLE;
            case "invalid_id", "invalid_argument", "too_large" -> DocstoreException.Code.INVALID_ARGUMENT;
            case "no_collection" -> DocstoreException.Code.NO_COLLECTION;
            case "moved" -> DocstoreException.Code.MOVED;
            case "resource_exhausted" -> DocstoreException.Code.OVERLOADED;
            case "unauthenticated" -> DocstoreException.Code.UNAUTHENTICATED;
            case "forbidden" -> DocstoreException.Code.FORBIDDEN;
            default -> DocstoreException.Code.SERVER;
        };
    }

    /** Parses an object and returns the bytes of the value of each field. */
    static Map<String, byte[]> fields(byte[] input, int from, int to) throws MalformedException {
        Json json = new Json(input, from, to);
        Map<String, byte[]> fields = new HashMap<>();
        json.space();
        json.expect('{');
        json.space();
        if (json.peek() != '}') {
            do {
                json.space();
                String name = textOf(json.value());
                json.space();
                json.expect(':');
                json.space();
                fields.put(name, json.value());
                json.space();
            } while (json.accept(','));
        }
        json.expect('}');
        json.space();
        if (json.at != to) {
            throw json.malformed("more after the object");
        }
        return fields;
    }

    /** Returns the bytes of the value that begins here. It checks strings and brackets, not numbers. */
    private byte[] value() throws MalformedException {
        int from = at;
        int depth = 0;
        do {
            switch (peek()) {
                case '"' -> skipString();
                case '{', '[' -> {
                    if (++depth > MAX_DEPTH) {
                        throw malformed("too many arrays and objects in each other");
                    }
                    at++;
                }
                case '}', ']' -> {
                    if (--depth < 0) {
                        throw malformed("no value");
                    }
                    at++;
                }
                case ',', ':', ' ', '\t', '\r', '\n' -> {
                    if (depth == 0) {
                        throw malformed("no value");
                    }
                    at++;
                }
                default -> skipWord();
            }
        } while (depth > 0);
        return Arrays.copyOfRange(input, from, at);
    }

    private void skipString() throws MalformedException {
        for (at++; peek() != '"'; at++) {
            if (input[at] == '\\') {
                at++;
            }
        }
        at++;
    }

    private void skipWord() {
        while (at < end && ",:{}[]\" \t\r\n".indexOf(input[at]) < 0) {
            at++;
        }
    }

    private byte peek() throws MalformedException {
        if (at >= end) {
            throw malformed("it ends early");
        }
        return input[at];
    }

    private void space() {
        while (at < end && (input[at] == ' ' || input[at] == '\t' || input[at] == '\r' || input[at] == '\n')) {
            at++;
        }
    }

    private boolean accept(char c) throws MalformedException {
        if (peek() != c) {
            return false;
        }
        at++;
        return true;
    }

    private void expect(char c) throws MalformedException {
        if (!accept(c)) {
            throw malformed("no '" + c + "'");
        }
    }

    private MalformedException malformed(String problem) {
        return new MalformedException("malformed JSON at byte " + at + ": " + problem);
    }

    private static boolean isTrue(byte[] value) throws MalformedException {
        String word = value == null ? "missing" : new String(value, StandardCharsets.UTF_8);
        if (!word.equals("true") && !word.equals("false")) {
            throw new MalformedException("\"found\" is " + word + ": want true or false");
        }
        return word.equals("true");
    }

    private static String textOf(byte[] value) throws MalformedException {
        return new String(bytesOf(value), StandardCharsets.UTF_8);
    }

    private static byte[] base64Of(byte[] value) throws MalformedException {
        try {
            return Base64.getDecoder().decode(bytesOf(value));
        } catch (IllegalArgumentException e) {
            throw new MalformedException("malformed base64: " + e.getMessage());
        }
    }

    /** Returns the UTF-8 bytes of a JSON string. */
    private static byte[] bytesOf(byte[] value) throws MalformedException {
        if (value == null || value.length < 2 || value[0] != '"') {
            throw new MalformedException("a string is missing");
        }
        ByteArrayOutputStream out = new ByteArrayOutputStream(value.length);
        for (int i = 1; i < value.length - 1; i++) {
            if (value[i] != '\\') {
                out.write(value[i]);
                continue;
            }
            char c = (char) value[++i];
            if (c != 'u') {
                int known = "\"\\/bfnrt".indexOf(c);
                if (known < 0) {
                    throw new MalformedException("unknown escape \\" + c);
                }
                out.write("\"\\/\b\f\n\r\t".charAt(known));
                continue;
            }
            StringBuilder units = new StringBuilder().append(unit(value, i + 1)); // a surrogate pair is two escapes
            i += 4;
            if (Character.isHighSurrogate(units.charAt(0)) && i + 2 < value.length && value[i + 1] == '\\' && value[i + 2] == 'u') {
                units.append(unit(value, i + 3));
                i += 6;
            }
            out.writeBytes(units.toString().getBytes(StandardCharsets.UTF_8));
        }
        return out.toByteArray();
    }

    private static char unit(byte[] value, int from) throws MalformedException {
        int unit = 0;
        for (int i = from; i < from + 4; i++) {
            int digit = i < value.length ? Character.digit(value[i], 16) : -1;
            if (digit < 0) {
                throw new MalformedException("malformed \\u escape");
            }
            unit = unit << 4 | digit;
        }
        return (char) unit;
    }
}
