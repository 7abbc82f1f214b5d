package echomesh;

import java.nio.charset.StandardCharsets;
import java.time.LocalDateTime;
import java.time.ZoneOffset;
import java.time.format.DateTimeFormatter;
import java.util.Arrays;
import java.util.Base64;

import org.apache.spark.unsafe.array.ByteArrayMethods;

/** The extension attributes of the rows: names and values in canonical form, and which row has which of them. */
final class Attributes {
    private static final DateTimeFormatter SECONDS = DateTimeFormatter.ofPattern("uuuu-MM-dd'T'HH:mm:ss");
    private static final DateTimeFormatter MICROS = DateTimeFormatter.ofPattern("uuuu-MM-dd'T'HH:mm:ss.SSSSSS");

    final int[] begins = new int[Rows.MOST + 1]; // of each row's entries
    int[] names = new int[64];
    int[] nameSizes = new int[64];
    int[] values = new int[64]; // where a text stands in memory; ~ its place in `made` when it was made
    int[] valueSizes = new int[64];
    byte[] made = new byte[256];
    private int entries;
    private int used; // of `made`

    void clear() {
        entries = 0;
        used = 0;
    }

    void end(int row) {
        begins[row + 1] = entries;
    }

    void undo(int row) {
        entries = begins[row];
    }

    /** One more for the row that is being added; false when it has the name already, or no event has such a value. */
    boolean add(long memory, int row, int name, int size, Value value, boolean wanted) {
        for (int i = begins[row]; i < entries; i++) {
            if (nameSizes[i] == size
                && ByteArrayMethods.arrayEquals(null, memory + names[i], null, memory + name, size)) return false;
        }
        if (entries == names.length) grow();
        names[entries] = name;
        nameSizes[entries] = size;
        if (wanted && !put(memory, value)) return false;
        entries++;
        return true;
    }

    private boolean put(long memory, Value value) {
        switch (value.kind) {
            case Value.STR:
                values[entries] = value.body;
                valueSizes[entries] = value.size;
                return Judge.text(memory + value.body, value.size);
            case Value.BIN:
                return make(Base64.getEncoder().encode(Judge.copy(memory + value.body, value.size)));
            case Value.BOOL:
                return make(value.number == 1 ? "true" : "false");
            case Value.INT:
                return value.number == (int) value.number && make(Long.toString(value.number));
            default:
                return value.stamp(memory) && make(iso(value.number));
        }
    }

    private static String iso(long micros) {
        long second = Math.floorDiv(micros, 1000000L);
        long rest = Math.floorMod(micros, 1000000L);
        LocalDateTime time = LocalDateTime.ofEpochSecond(second, (int) rest * 1000, ZoneOffset.UTC);
        return time.format(rest == 0 ? SECONDS : MICROS) + "Z";
    }

    private boolean make(String text) {
        return make(text.getBytes(StandardCharsets.US_ASCII));
    }

    private boolean make(byte[] text) {
        if (used + text.length > made.length) made = Arrays.copyOf(made, 2 * (used + text.length));
        System.arraycopy(text, 0, made, used, text.length);
        values[entries] = ~used;
        valueSizes[entries] = text.length;
        used += text.length;
        return true;
    }

    private void grow() {
        int room = 2 * names.length;
        names = Arrays.copyOf(names, room);
        nameSizes = Arrays.copyOf(nameSizes, room);
        values = Arrays.copyOf(values, room);
        valueSizes = Arrays.copyOf(valueSizes, room);
    }
}
