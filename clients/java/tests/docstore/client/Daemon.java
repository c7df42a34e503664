package docstore.client;

import java.io.BufferedReader;
import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;

/** A docserviced process. */
final class Daemon {
    final Process process;
    final String address; // of HTTP

    private Daemon(Process process, String address) {
        this.process = process;
        this.address = address;
    }

    /** Starts a daemon and waits until it has read its queue. */
    static Daemon start(Path bin, Path queue, Path data, String... flags) throws Exception {
        List<String> command = new ArrayList<>(List.of(bin.resolve("docserviced").toString(), "serve", "--quiet", "--collection", "jobs=" + queue,
                "--data", data.toString(), "--memory", "64MiB", "--boxcar", "127.0.0.1:0", "--http", "127.0.0.1:0"));
        command.addAll(List.of(flags));
        Process process = new ProcessBuilder(command).redirectOutput(ProcessBuilder.Redirect.DISCARD).start();
        BufferedReader log = process.errorReader(StandardCharsets.UTF_8);
        StringBuilder lines = new StringBuilder();
        String address = null;
        boolean ready = false;
        while (address == null || !ready) {
            String text = log.readLine();
            if (text == null) {
                throw new IOException("the daemon exited: " + lines);
            }
            lines.append(text).append('\n');
            byte[] line = text.getBytes(StandardCharsets.UTF_8);
            Map<String, byte[]> fields = Json.fields(line, 0, line.length);
            String message = new String(fields.get("msg"), StandardCharsets.UTF_8);
            if (message.equals("\"serving\"")) {
                address = new String(fields.get("http"), StandardCharsets.UTF_8).replaceAll("\"|https?://", "");
            }
            ready |= message.equals("\"the queue has been read to its end\"");
        }
        Thread drain = new Thread(() -> log.lines().forEach(line -> {}));
        drain.setDaemon(true);
        drain.start();
        return new Daemon(process, address);
    }

    /** Sends a signal, such as STOP. */
    void signal(String name) throws Exception {
        Tests.equal(0, new ProcessBuilder("kill", "-" + name, String.valueOf(process.pid())).inheritIO().start().waitFor());
    }

    /** Ends the process with a signal and waits for its end. */
    void end(String name) throws Exception {
        if (process.isAlive()) {
            signal(name);
        }
        process.waitFor();
    }
}
