package echomesh;

import org.apache.spark.unsafe.Platform;

/** The names of attributes. */
final class Names {
    private static final String[] OF_COLUMNS = {
        null, null, null, "time", "id", "source", "type", "subject", "datacontenttype", "dataschema", "data", null,
        "specversion"
    };
    private static final int LONGEST = 15;
    private static final long[] HEADS = new long[OF_COLUMNS.length]; // the first and the last eight bytes of a name
    private static final long[] TAILS = new long[OF_COLUMNS.length];
    private static final int[][] BY_SIZE = new int[LONGEST + 1][];

    static {
        for (int size = 0; size <= LONGEST; size++) {
            int found = 0;
            int[] columns = new int[OF_COLUMNS.length];
            for (int column = 0; column < OF_COLUMNS.length; column++) {
                String name = OF_COLUMNS[column];
                if (name != null && name.length() == size) {
                    columns[found++] = column;
                    HEADS[column] = word(name, 0);
                    TAILS[column] = word(name, Math.max(0, size - 8));
                }
            }
            BY_SIZE[size] = java.util.Arrays.copyOf(columns, found);
        }
    }

    private static long word(String name, int from) {
        long found = 0;
        for (int i = Math.min(name.length(), from + 8) - 1; i >= from; i--) found = found << 8 | name.charAt(i);
        return found;
    }

    /** The column of an attribute; -1 for one that is an extension. */
    static int columnOf(long name, int size) {
        if (size > LONGEST) return -1;
        int[] candidates = BY_SIZE[size];
        for (int i = 0; i < candidates.length; i++) {
            int column = candidates[i];
            long head = Platform.getLong(null, name);
            if (size < 8 ? (head & (1L << 8 * size) - 1) == HEADS[column]
                : head == HEADS[column] && Platform.getLong(null, name + size - 8) == TAILS[column]) return column;
        }
        return -1;
    }

    static boolean isExtension(long name, int size) {
        for (int i = 0; i < size; i++) {
            byte c = Platform.getByte(null, name + i);
            if (!(c >= 'a' && c <= 'z' || c >= '0' && c <= '9')) return false;
        }
        return size > 0;
    }
}
