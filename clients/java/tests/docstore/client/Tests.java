package docstore.client;

import java.util.Arrays;
import java.util.List;
import java.util.Objects;

/** Runs all tests, or those whose names contain the argument. DOCSTORE_BIN has the commands; else it builds them. */
final class Tests {
    private Tests() {}

    /** A test. */
    interface Body {
        void run() throws Exception;
    }

    record Test(String name, Body body) {}

    public static void main(String[] arguments) throws Exception {
        String wanted = arguments.length > 0 ? arguments[0] : "";
        int passed = 0;
        int failed = 0;
        DaemonTests daemons = new DaemonTests();
        try {
            for (List<Test> tests : List.of(UnitTests.all(), daemons.all())) {
                for (Test test : tests) {
                    if (!test.name.contains(wanted)) {
                        continue;
                    }
                    try {
                        test.body.run();
                        passed++;
                    } catch (Exception | AssertionError e) {
                        failed++;
                        System.out.println("FAILED: " + test.name);
                        e.printStackTrace(System.out);
                    }
                }
            }
        } finally {
            daemons.end();
        }
        System.out.println(passed + " passed, " + failed + " failed");
        System.exit(failed > 0 || passed == 0 ? 1 : 0);
    }

    static void equal(Object want, Object got) {
        boolean same = want instanceof byte[] a && got instanceof byte[] b ? Arrays.equals(a, b) : Objects.equals(want, got);
        if (!same) {
            throw new AssertionError("want " + want + ", got " + got);
        }
    }

    static void isTrue(boolean condition, String what) {
        if (!condition) {
            throw new AssertionError(what);
        }
    }

    /** Runs a body that must fail with this type, and returns the exception. */
    static <T extends Exception> T fails(Class<T> type, Body body) throws Exception {
        try {
            body.run();
        } catch (Exception e) {
            if (type.isInstance(e)) {
                return type.cast(e);
            }
            throw e;
        }
        throw new AssertionError("no " + type.getSimpleName());
    }

    /** Runs a body that must fail with this code. */
    static void fails(DocstoreException.Code code, Body body) throws Exception {
        DocstoreException e = fails(DocstoreException.class, body);
        if (e.code() != code) {
            throw new AssertionError("want " + code, e);
        }
    }
}
