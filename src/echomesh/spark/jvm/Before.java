package echomesh;

import org.apache.spark.unsafe.Platform;

/** The attributes of the event before, by their places in its map: what the next one most likely has there. */
final class Before {
    private static final int MOST = 16;
    private static final int LONGEST = 64; // bytes of a name with its value

    final int[] columns = new int[MOST];
    final int[] begins = new int[MOST];
    final int[] names = new int[MOST]; // bytes of the name with its header
    final int[] wholes = new int[MOST]; // and with the value
    final int[] bodies = new int[MOST]; // of the value, from the beginning
    final int[] sizes = new int[MOST];
    int count; // places that are known

    void put(int place, int column, int begin, int behind, Value value, int end) {
        if (place >= MOST) return;
        count = Math.max(count, place + 1);
        columns[place] = column;
        begins[place] = begin;
        names[place] = behind - begin > 16 ? 0 : behind - begin;
        wholes[place] = end - begin > LONGEST || value.kind != Value.STR ? 0 : end - begin;
        bodies[place] = value.body - begin;
        sizes[place] = value.size;
    }

    /** Nothing is expected there. */
    void forget(int place) {
        if (place >= MOST) return;
        count = Math.max(count, place + 1);
        names[place] = 0;
    }

    boolean isName(long memory, int p, int end, int place) {
        int size = names[place];
        if (size == 0 || size > end - p) return false;
        int known = begins[place];
        long first = word(memory, p) ^ word(memory, known);
        if (size <= 8) return first << 64 - 8 * size == 0;
        return first == 0 && word(memory, p + size - 8) == word(memory, known + size - 8);
    }

    /** Whether the value is the same, too. */
    boolean isWhole(long memory, int p, int end, int place) {
        int size = wholes[place];
        if (size < 8 || size > end - p) return false;
        int known = begins[place];
        for (int i = size - 8; i > 0; i -= 8) if (word(memory, p + i) != word(memory, known + i)) return false;
        return word(memory, p) == word(memory, known);
    }

    private static long word(long memory, int p) {
        return Platform.getLong(null, memory + p);
    }
}
