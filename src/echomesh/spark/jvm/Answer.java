package echomesh;

import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.util.Arrays;

import org.apache.spark.unsafe.Platform;

/** A message of a server, read where it was received; as far as HELLO and FETCH need it (docs/protocol-eventmesh.md). */
final class Answer {
    private static final int FIELDS = 8;
    private static final int DEEPEST = 16;

    int command;
    int status;
    String seq;
    String sessionId;
    byte[] logId;
    long offset;
    long next;
    int records; // where they stand, and end
    int end;
    long shift; // of rows of a stage: what is added to their numbers
    long timeNs = -1; // and when all of them were appended
    boolean lost; // there are none, since they can't be had any more
    private final Chunk chunk;
    private final int size;
    private int p;

    Answer(Chunk chunk, int size) throws IOException {
        this.chunk = chunk;
        this.size = size;
        if (many(0x90, 0xDC) != FIELDS) throw new IOException("no message of EventMesh");
        skip(0); // the magic value
        skip(0); // and the version
        command = (int) number();
        status = (int) number();
        skip(0);
        skip(0);
        seq = text();
        if (peek() == 0xC0) return;
        for (int left = many(0x80, 0xDE); left > 0; left--) entry(text());
    }

    private void entry(String name) throws IOException {
        if (name.equals("SessionId")) {
            sessionId = text();
        } else if (name.equals("LogId") && peek() != 0xC0) {
            int length = bin();
            logId = Judge.copy(chunk.memory + p, length);
            p += length;
        } else if (name.equals("Offset")) {
            offset = number();
        } else if (name.equals("NextOffset")) {
            next = number();
        } else if (name.equals("Shift") && peek() != 0xC0) {
            shift = number();
        } else if (name.equals("Time") && peek() != 0xC0) {
            timeNs = number();
        } else if (name.equals("Records")) {
            int length = bin();
            records = p;
            p += length;
            end = p;
        } else {
            lost |= name.equals("Lost") && peek() != 0xC0;
            skip(0);
        }
    }

    boolean isOf(byte[] log) {
        return Arrays.equals(log, logId);
    }

    private int peek() throws IOException {
        if (p >= size) throw new IOException("a message ends too early");
        return Platform.getByte(null, chunk.memory + p) & 0xFF;
    }

    private long big(int bytes) throws IOException {
        return Value.big(chunk.memory + room(bytes), bytes);
    }

    /** Where these bytes stand, which are passed over. */
    private int room(long bytes) throws IOException {
        if (bytes < 0 || bytes > size - p) throw new IOException("a message ends too early");
        int at = p;
        p += (int) bytes;
        return at;
    }

    private int many(int small, int large) throws IOException {
        int t = peek();
        p++;
        if (t >= small && t < small + 16) return t - small;
        if (t == large) return (int) big(2);
        throw new IOException("a message has a value of another kind");
    }

    private long number() throws IOException {
        int t = peek();
        p++;
        if (t < 0x80 || t >= 0xE0) return (byte) t;
        if (t >= 0xCC && t <= 0xCF) return big(1 << t - 0xCC);
        if (t >= 0xD0 && t <= 0xD3) {
            int bytes = 1 << t - 0xD0;
            return big(bytes) << 64 - 8 * bytes >> 64 - 8 * bytes;
        }
        throw new IOException("a message has a value of another kind");
    }

    private String text() throws IOException {
        int t = peek();
        p++;
        if (t < 0xA0 || t > 0xBF && (t < 0xD9 || t > 0xDB)) throw new IOException("a message has no text where one is");
        int length = t <= 0xBF ? t & 31 : (int) big(1 << t - 0xD9);
        int at = room(length);
        return new String(Judge.copy(chunk.memory + at, length), StandardCharsets.UTF_8);
    }

    /** The length of the bytes that stand here. */
    private int bin() throws IOException {
        int t = peek();
        p++;
        if (t < 0xC4 || t > 0xC6) throw new IOException("a message has no bytes where some are");
        int length = (int) big(1 << t - 0xC4);
        room(length);
        p -= length;
        return length;
    }

    private void skip(int depth) throws IOException {
        if (depth > DEEPEST) throw new IOException("a message is too deep");
        int t = peek();
        p++;
        if (t < 0x80 || t >= 0xE0 || t == 0xC0 || t == 0xC2 || t == 0xC3) return;
        if (t >= 0xA0 && t <= 0xBF) room(t & 31);
        else if (t <= 0x8F || t == 0xDE || t == 0xDF) all(2 * (t <= 0x8F ? t & 15 : big(t == 0xDE ? 2 : 4)), depth);
        else if (t <= 0x9F || t == 0xDC || t == 0xDD) all(t <= 0x9F ? t & 15 : big(t == 0xDC ? 2 : 4), depth);
        else if (t >= 0xC4 && t <= 0xC6) room(big(1 << t - 0xC4));
        else if (t >= 0xC7 && t <= 0xC9) room(big(1 << t - 0xC7) + 1);
        else if (t == 0xCA || t == 0xCB) room(t == 0xCA ? 4 : 8);
        else if (t >= 0xCC && t <= 0xCF) room(1 << t - 0xCC);
        else if (t >= 0xD0 && t <= 0xD3) room(1 << t - 0xD0);
        else if (t >= 0xD4 && t <= 0xD8) room((1 << t - 0xD4) + 1);
        else if (t >= 0xD9 && t <= 0xDB) room(big(1 << t - 0xD9));
        else throw new IOException("a message has a value of no kind");
    }

    private void all(long count, int depth) throws IOException {
        for (long left = count; left > 0; left--) skip(depth + 1);
    }
}
