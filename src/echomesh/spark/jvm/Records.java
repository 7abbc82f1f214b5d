package echomesh;

import org.apache.spark.unsafe.Platform;

/** A run of stored records, which becomes rows. The layout is in docs/format-log.md. */
final class Records {
    static final int HEADER = 28;
    private static final int ORIGIN = 24;
    private static final int MOST_BYTES = (64 << 20) + 4096;

    long expected; // the offset of the next one
    boolean bad; // it is not what should be there
    boolean odd; // Python has to look at it
    private final Chain chain = new Chain();
    private Chunk chunk;
    private long shift; // in a stage: what is added to its rows' numbers
    private long timeNs = -1; // and when all of them were appended

    /** Those that come now begin with this offset; if they are rows of a stage, with the shift and time of that. */
    void turn(long first, long shift, long timeNs) {
        expected = first;
        this.shift = shift;
        this.timeNs = timeNs;
    }

    /** Adds those from `at` on, as far as they are whole, belong before `until` and find room; where it stopped. */
    int add(Rows rows, Chunk chunk, int at, int end, long start, long until) {
        this.chunk = chunk;
        bad = false;
        odd = false;
        while (expected < until && rows.count < Rows.MOST) {
            chain.begin(chunk);
            long room = Math.min(Math.min(until - expected, Rows.MOST - rows.count), Chain.MOST);
            int length = 0;
            long number = expected - shift;
            long memory = chunk.memory;
            for (int far = at + Chain.BYTES; chain.count < room && at < far; number++) {
                length = record(memory + at, end - at, number);
                if (length <= 0) break;
                chain.add(at, length);
                at += length;
            }
            int good = chain.good();
            bad = length < 0 || good < chain.count;
            int from = (int) Math.min(good, Math.max(0, start - expected));
            for (int i = from; i < good; i++) {
                int begin = chain.begin(i);
                if (!rows.add(begin + bodyAt(begin), chain.end(i), timeAt(begin))) {
                    odd = true;
                    good = i;
                }
            }
            expected += good;
            if (good < chain.count) {
                chain.restore(good);
                return chain.begin(good);
            }
            if (length <= 0) break;
        }
        return at;
    }

    /** How much memory the record takes that stands at the beginning of this chunk, and did not fit. */
    static int needed(Chunk chunk) {
        return (Platform.getInt(null, chunk.memory) + 7 & ~7) + HEADER;
    }

    /** The bytes that the record takes; 0 when it goes on behind the end, -1 when it is another one. Sums are for `Chain`. */
    private int record(long at, int left, long number) {
        if (left < HEADER) return 0;
        int length = Platform.getInt(null, at);
        if (length < HEADER || length > MOST_BYTES) return -1;
        int padded = length + 7 & ~7;
        if (padded > left) return 0;
        int flags = Platform.getInt(null, at + 24);
        if ((flags & ~1) != 0 || length < HEADER + ORIGIN * flags) return -1;
        if (Platform.getLong(null, at + 8) != number) return -1;
        if (timeNs >= 0 && Platform.getLong(null, at + 16) != 0) return -1;
        // What fills it up is zeros: the bytes of its last word from the length on. Shifted twice, since it may be none of
        // them; whether it is changes with each record, so that a branch would often be guessed wrong.
        if (Platform.getLong(null, at + padded - 8) >>> 1 >>> 63 - 8 * (padded - length) != 0) return -1;
        return padded;
    }

    private int bodyAt(int at) {
        return HEADER + ORIGIN * intAt(at + 24);
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
