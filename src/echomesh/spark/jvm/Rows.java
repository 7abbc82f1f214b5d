package echomesh;

import java.util.Arrays;

import org.apache.spark.unsafe.Platform;
import org.apache.spark.unsafe.types.UTF8String;

/**
 * Events as rows: where each attribute stands in the memory that they were read into. `Columns` shows them to Spark,
 * and has them parsed when a query asks for an attribute; one that does not, as a count, costs nothing here.
 */
final class Rows {
    static final int MOST = 1 << 14;
    static final int NONE = -1; // in place of a size
    static final int ODD = -2; // of an attribute of an event that Python has to look at

    // As in native/log_columns.pxd; a set of them is a word with their bits.
    static final int TOPIC = 0;
    static final int OFFSET = 1;
    static final int TIMESTAMP = 2;
    static final int TIME = 3;
    static final int ID = 4;
    static final int SOURCE = 5;
    static final int TYPE = 6;
    static final int SUBJECT = 7;
    static final int DATACONTENTTYPE = 8;
    static final int DATASCHEMA = 9;
    static final int DATA = 10;
    static final int ATTRIBUTES = 11;
    static final int SPECVERSION = 12;
    private static final int REQUIRED = 1 << SPECVERSION | 1 << ID | 1 << SOURCE | 1 << TYPE;
    private static final int OFTEN_SAME =
        1 << SPECVERSION | 1 << SOURCE | 1 << TYPE | 1 << DATACONTENTTYPE | 1 << DATASCHEMA;

    private static final int MAX_ATTRIBUTES = 255;
    private static final int MAX_EXTENSIONS = 32; // an event with more is odd

    final int wanted;
    final Attributes attributes = new Attributes();
    final long[] stamps = new long[MOST];
    final long[] times = new long[MOST];
    final long[] offsets = new long[MOST]; // if they are of many topics
    final UTF8String[] topics = new UTF8String[MOST];
    final int[][] at = new int[SPECVERSION + 1][];
    final int[][] sizes = new int[SPECVERSION + 1][]; // or NONE, or ODD; of a time and of attributes it says no more
    long memory;
    int count;
    long first; // offset of the first row, if all are of one topic
    boolean many; // topics
    int odd; // rows
    boolean parsed;
    private final boolean ofEvents; // a column is wanted for which events are parsed
    private final boolean atOnce;
    private boolean parsing; // when a row is added
    private long lastNs; // events that were appended together have one time
    private long lastStamp; // of that
    private final Judge judge;
    private final int[] begins = new int[MOST];
    private final int[] ends = new int[MOST];
    private final Value value = new Value();
    private final Before before = new Before();

    /** With `atOnce` events are parsed when they are added, so that odd ones are not. */
    Rows(int wanted, Judge judge, boolean atOnce) {
        this.wanted = wanted;
        this.judge = judge;
        this.ofEvents = wanted >> TIME != 0;
        this.atOnce = atOnce && ofEvents;
        for (int column = TIME; column <= ATTRIBUTES; column++) {
            if (wants(column)) {
                at[column] = new int[MOST];
                sizes[column] = new int[MOST];
            }
        }
    }

    private boolean wants(int column) {
        return (wanted >> column & 1) != 0;
    }

    void begin(long memory, long first) {
        this.first = first;
        many = false;
        parsed = atOnce;
        begin(memory);
    }

    /** Those that come now are of many topics, and are parsed when they are added: odd ones are left to one topic's turn. */
    void beginMany(long memory) {
        many = true;
        parsed = true;
        begin(memory);
    }

    private void begin(long memory) {
        this.memory = memory;
        count = 0;
        odd = 0;
        parsing = parsed && ofEvents;
        attributes.clear();
        before.count = 0;
    }

    /** Those from `from` on are of this topic, from this offset on. */
    void of(int from, UTF8String topic, long offset) {
        for (int row = from; row < count; row++) {
            topics[row] = topic;
            offsets[row] = offset + row - from;
        }
    }

    /** Takes back those from `from` on. */
    void undo(int from) {
        count = from;
        attributes.undo(from);
    }

    /** The event from `begin` up to `end` becomes a row; false when it is odd, and should have been parsed. */
    boolean add(int begin, int end, long timeNs) {
        if (parsing && !event(count, begin, end)) {
            attributes.undo(count);
            return false;
        }
        if (ofEvents) {
            begins[count] = begin;
            ends[count] = end;
        }
        if (timeNs != lastNs) {
            lastNs = timeNs;
            lastStamp = Math.floorDiv(timeNs, 1000L);
        }
        stamps[count++] = lastStamp;
        return true;
    }

    /** Finds the attributes of all rows; `odd` says how many are to be had from Python. */
    void parse() {
        parsed = true;
        for (int row = 0; row < count; row++) {
            if (!event(row, begins[row], ends[row])) {
                odd++;
                attributes.undo(row);
                attributes.end(row);
                for (int column = TIME; column <= ATTRIBUTES; column++) if (wants(column)) sizes[column][row] = ODD;
            }
        }
    }

    private boolean event(int row, int p, int end) {
        int many = p < end ? Platform.getByte(null, memory + p) & 0xFF : 0;
        if (many < 0x80 || many > 0x8F) {
            if (many != 0xDE || end - p < 3) return false;
            many = (int) Value.big(memory + p + 1, 2);
            if (many > MAX_ATTRIBUTES) return false;
            p += 3;
        } else {
            many &= 15;
            p++;
        }
        int seen = 0;
        int extensions = 0;
        for (int place = 0; place < many; place++) {
            // Most events have the attributes of the one before in the same order, and some with the same values.
            int begin = p;
            int column;
            if (place < before.count && before.isName(memory, p, end, place)) {
                column = before.columns[place];
                if ((OFTEN_SAME >> column & 1) != 0 && before.isWhole(memory, p, end, place)) {
                    if ((seen >> column & 1) != 0) return false;
                    seen |= 1 << column;
                    if (at[column] != null) {
                        at[column][row] = p + before.bodies[place];
                        sizes[column][row] = before.sizes[place];
                    }
                    p += before.wholes[place];
                    continue;
                }
                p += before.names[place];
            } else {
                p = value.read(memory, p, end);
                if (p < 0 || value.kind != Value.STR) return false;
                column = Names.columnOf(memory + value.body, value.size);
            }
            int nameBody = value.body;
            int nameSize = value.size;
            int behind = p;
            p = value.read(memory, p, end);
            if (p < 0) return false;
            if (column < 0) {
                if (++extensions > MAX_EXTENSIONS || !Names.isExtension(memory + nameBody, nameSize)) return false;
                if (!attributes.add(memory, row, nameBody, nameSize, value, wants(ATTRIBUTES))) return false;
                before.forget(place);
                continue;
            }
            if ((seen >> column & 1) != 0) return false;
            seen |= 1 << column;
            if (!take(row, column)) return false;
            before.put(place, column, begin, behind, value, p);
        }
        if ((seen & REQUIRED) != REQUIRED || p != end) return false;
        int missing = wanted & ~seen & ~(1 << ATTRIBUTES);
        for (int column = TIME; column <= DATA; column++) if ((missing >> column & 1) != 0) sizes[column][row] = NONE;
        if (wants(ATTRIBUTES)) sizes[ATTRIBUTES][row] = 0;
        attributes.end(row);
        return true;
    }

    private boolean take(int row, int column) {
        if (column == SPECVERSION) {
            return value.kind == Value.STR && value.size == 3 && Value.big(memory + value.body, 3) == 0x312E30; // 1.0
        }
        if (!wants(column)) return true;
        if (column == TIME) {
            if (value.kind == Value.TIME ? !value.stamp(memory) : value.kind != Value.STR || !value.parse(memory)) {
                return false;
            }
            times[row] = value.number;
        } else if (column != DATA || value.kind != Value.BIN) {
            long text = memory + value.body;
            int size = value.size;
            if (value.kind != Value.STR) return false;
            if (column == DATA ? !Judge.utf8(text, size, false) : !judge.allows(column, text, size)) return false;
        }
        at[column][row] = value.body;
        sizes[column][row] = value.size;
        return true;
    }
}
