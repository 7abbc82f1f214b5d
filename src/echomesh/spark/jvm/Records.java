package echomesh;

import java.util.zip.CRC32C;

import org.apache.spark.unsafe.Platform;

/** A run of stored records, which becomes rows. The layout is in docs/format-log.md. */
final class Records {
    static final int HEADER = 28;
    private static final int ORIGIN = 24;
    private static final int MOST_BYTES = (64 << 20) + 4096;

    long expected; // the offset of the next one
    boolean bad; // it is not what should be there
    boolean odd; // Python has to look at it
    private final CRC32C sum = new CRC32C();
    private Chunk chunk;
    private long shift; // in a stage: what is added to its rows' numbers
    private long timeNs = -1; // and when all of them were appended

    /** Those that come now are of this place, and the first one has this offset. */
    void turn(Place place, long first) {
        shift = place.shift;
        timeNs = place.timeNs;
        expected = first;
    }

    /** Adds those from `at` on, as far as they are whole, belong before `until` and find room; where it stopped. */
    int add(Rows rows, Chunk chunk, int at, int end, long start, long until) {
        this.chunk = chunk;
        bad = false;
        odd = false;
        while (expected < until && rows.count < Rows.MOST) {
            int length = record(at, end - at);
            bad = length < 0;
            if (length <= 0) break;
            if (expected >= start && !rows.add(at + bodyAt(at), at + lengthAt(at), timeAt(at))) {
                odd = true;
                break;
            }
            at += length;
            expected++;
        }
        return at;
    }

    /** How much memory the record takes that stands at the beginning of this chunk, and did not fit. */
    static int needed(Chunk chunk) {
        return (Platform.getInt(null, chunk.memory) + 7 & ~7) + HEADER;
    }

    /** The bytes that the record takes; 0 when it goes on behind the end, -1 when it is not what should be there. */
    private int record(int at, int left) {
        if (left < HEADER) return 0;
        int length = lengthAt(at);
        if (length < HEADER || length > MOST_BYTES) return -1;
        int padded = length + 7 & ~7;
        if (padded > left) return 0;
        int flags = intAt(at + 24);
        if (flags < 0 || flags > 1 || flags == 1 && length < HEADER + ORIGIN) return -1;
        if (longAt(at + 8) != expected - shift) return -1;
        if (timeNs >= 0 && longAt(at + 16) != 0) return -1;
        // What fills it up is zeros: the bytes of its last word from the length on.
        if (length < padded && longAt(at + padded - 8) >>> 64 - 8 * (padded - length) != 0) return -1;
        // The sum is of the length and of what follows the sum: with the length in its place they are one piece.
        int wanted = intAt(at + 4);
        Platform.putInt(null, chunk.memory + at + 4, length);
        sum.reset();
        sum.update(chunk.bytes(at + 4, at + length));
        Platform.putInt(null, chunk.memory + at + 4, wanted);
        return (int) sum.getValue() == wanted ? padded : -1;
    }

    private int lengthAt(int at) {
        return intAt(at);
    }

    private int bodyAt(int at) {
        return intAt(at + 24) == 0 ? HEADER : HEADER + ORIGIN;
    }

    private long timeAt(int at) {
        return timeNs >= 0 ? timeNs : longAt(at + 16);
    }

    private int intAt(int at) {
        return Platform.getInt(null, chunk.memory + at);
    }

    private long longAt(int at) {
        return Platform.getLong(null, chunk.memory + at);
    }
}
