package echomesh;

import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.Iterator;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.ConcurrentLinkedQueue;

/** A session with a server, for fetches. One task after the other uses it, since a new one takes two round trips. */
final class Visit {
    private static final int HELLO = 2;
    private static final int FETCH = 264;
    private static final int MOST_BYTES = 65 << 20; // of a message
    private static final int REQUEST_BYTES = 1 << 14;
    private static final int LENGTH_BYTES = 4;
    private static final long LONGEST_NS = 60L * 1000 * 1000 * 1000;

    // Those that no task uses now, by what they have in common.
    private static final ConcurrentHashMap IDLE = new ConcurrentHashMap();

    Chunk chunk = Chunk.take(Chunk.BYTES); // that the last answer stands in
    boolean used; // by a task before this one: the server may have closed it since
    private final Server server;
    private final Line line;
    private final ByteBuffer request = ByteBuffer.allocate(REQUEST_BYTES);
    private String sessionId = "";
    private long asked;
    private long answered;
    private long left; // by the last task, when

    private Visit(Server server) throws IOException {
        this.server = server;
        try {
            line = Line.to(server);
        } catch (IOException error) {
            chunk.give();
            throw error;
        }
        try {
            begin(HELLO, 5);
            entry("ClientId", server.clientId);
            entry("Environment", server.environment);
            entry("Purpose", 0); // to subscribe, which reads
            entry("IsServer", false);
            entry("Ticket", server.ticket);
            send();
            Answer welcome = receive();
            if (welcome.status != 0 || welcome.sessionId == null) throw new IOException("the server refused it");
            sessionId = welcome.sessionId;
        } catch (IOException error) {
            close();
            throw error;
        }
    }

    static Visit to(Server server) throws IOException {
        Visit known = (Visit) idle(server).poll();
        return known == null ? anew(server) : known;
    }

    static Visit anew(Server server) throws IOException {
        return new Visit(server);
    }

    private static ConcurrentLinkedQueue idle(Server server) {
        ConcurrentLinkedQueue made = new ConcurrentLinkedQueue();
        ConcurrentLinkedQueue found = (ConcurrentLinkedQueue) IDLE.putIfAbsent(server.key(), made);
        return found == null ? made : found;
    }

    /** The task is done with it, and nothing is on its way. */
    void leave() {
        used = true;
        left = System.nanoTime();
        if (chunk.size != Chunk.BYTES) chunk = Chunk.take(Chunk.BYTES);
        idle(server).add(this);
        Iterator all = IDLE.values().iterator();
        while (all.hasNext()) closeOld((ConcurrentLinkedQueue) all.next());
    }

    private void closeOld(ConcurrentLinkedQueue idle) {
        for (Visit known = (Visit) idle.peek(); known != null && left - known.left > LONGEST_NS;) {
            if (idle.remove(known)) known.close();
            known = (Visit) idle.peek();
        }
    }

    void close() {
        line.close();
        chunk.give();
    }

    /** Asks for records, for about so many bytes at the most. */
    void ask(String topic, long from, long until, int most) throws IOException {
        begin(FETCH, 7);
        entry("ClientId", server.clientId);
        entry("SessionId", sessionId);
        entry("Topic", topic);
        entry("Offset", from);
        entry("Until", until);
        entry("MaxBytes", most);
        entry("Unchecked", true);
        send();
    }

    /** The answer to the first question that was not answered yet. */
    Answer receive() throws IOException {
        while (true) {
            ByteBuffer length = chunk.empty(LENGTH_BYTES);
            line.fill(length);
            long size = Value.big(chunk.memory, LENGTH_BYTES);
            if (size > MOST_BYTES) throw new IOException("a message of " + size + " bytes");
            if (size > chunk.size) {
                chunk.give();
                chunk = Chunk.take((int) size);
            }
            line.fill(chunk.empty((int) size));
            Answer found = new Answer(chunk, (int) size);
            if (found.seq.isEmpty()) continue; // the server wants to say something
            if (!found.seq.equals(seq(answered))) throw new IOException("an answer to something else");
            answered++;
            return found;
        }
    }

    private static String seq(long number) {
        return Long.toString(number, 36);
    }

    private void begin(int command, int entries) {
        request.clear().position(LENGTH_BYTES);
        request.put((byte) 0x98);
        text("EventMesh");
        text("0000");
        number(command);
        number(0);
        text("");
        text("");
        text(seq(asked++));
        request.put((byte) (0x80 | entries));
    }

    private void entry(String name, String value) {
        text(name);
        text(value);
    }

    private void entry(String name, long value) {
        text(name);
        number(value);
    }

    private void entry(String name, boolean value) {
        text(name);
        request.put((byte) (value ? 0xC3 : 0xC2));
    }

    private void text(String value) {
        byte[] bytes = value.getBytes(StandardCharsets.UTF_8);
        if (bytes.length < 32) request.put((byte) (0xA0 | bytes.length));
        else request.put((byte) 0xDA).putShort((short) bytes.length);
        request.put(bytes);
    }

    private void number(long value) {
        if (value >= 0 && value < 128) request.put((byte) value);
        else request.put((byte) 0xD3).putLong(value);
    }

    private void send() throws IOException {
        request.putInt(0, request.position() - LENGTH_BYTES);
        request.flip();
        line.send(request);
    }
}
