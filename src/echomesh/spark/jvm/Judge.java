package echomesh;

import java.io.IOException;
import java.io.InputStream;
import java.nio.charset.StandardCharsets;
import java.util.regex.Pattern;

import org.apache.spark.unsafe.Platform;
import org.apache.spark.unsafe.array.ByteArrayMethods;

/** Whether values are as CloudEvents wants them. The grammars come from the rules in Python. */
final class Judge {
    private static final int SLOTS = 256;
    private static final int LONGEST = 1024; // to match one takes so much of the stack; longer ones are for Python
    private static final long BLANKS = 0x2020202020202020L;
    private static final long HIGH = 0x8080808080808080L;

    private static final Pattern[] RULES = new Pattern[Rows.DATASCHEMA + 1];

    static {
        RULES[Rows.SOURCE] = rule("source");
        RULES[Rows.DATACONTENTTYPE] = rule("datacontenttype");
        RULES[Rows.DATASCHEMA] = rule("dataschema");
    }

    // Values that passed: they come again and again.
    private final byte[][][] known = new byte[Rows.DATASCHEMA + 1][SLOTS][];

    private static Pattern rule(String name) {
        try {
            InputStream grammar = Judge.class.getResourceAsStream(name + ".grammar");
            byte[] found = grammar.readAllBytes();
            grammar.close();
            return Pattern.compile(new String(found, StandardCharsets.UTF_8));
        } catch (IOException error) {
            throw new IllegalStateException(error);
        }
    }

    boolean allows(int column, long p, int n) {
        if (n == 0) return false;
        if (RULES[column] == null) return text(p, n);
        if (n > LONGEST) return false;
        byte[][] slots = known[column];
        int mixed = (n * 0x85EBCA6B ^ Platform.getInt(null, Math.max(p, p + n - 4))) * 0x9E3779B1;
        int slot = mixed >>> 24;
        byte[] last = slots[slot];
        if (last != null && last.length == n
            && ByteArrayMethods.arrayEquals(last, Platform.BYTE_ARRAY_OFFSET, null, p, n)) return true;
        byte[] fresh = copy(p, n);
        if (!RULES[column].matcher(new String(fresh, StandardCharsets.ISO_8859_1)).matches()) return false;
        slots[slot] = fresh;
        return true;
    }

    static byte[] copy(long p, int n) {
        byte[] found = new byte[n];
        Platform.copyMemory(null, p, found, Platform.BYTE_ARRAY_OFFSET, n);
        return found;
    }

    /** Text without control characters, surrogates and noncharacters. */
    static boolean text(long p, int n) {
        int i = 0;
        for (; n - i >= 8; i += 8) {
            if (!plain(Platform.getLong(null, p + i))) return utf8(p, n, true);
        }
        if (i == n) return true;
        // The last bytes as one word, too: those of it that are not of the text count as blanks.
        int unused = 64 - 8 * (n - i);
        long last = Platform.getLong(null, p + i) << unused >>> unused | BLANKS << 64 - unused;
        return plain(last) || utf8(p, n, true);
    }

    // Whether eight bytes are all printable ASCII; may say no to some that are.
    private static boolean plain(long x) {
        return ((x | x - BLANKS | (x ^ 0x7F7F7F7F7F7F7F7FL) - 0x0101010101010101L) & HIGH) == 0;
    }

    static boolean utf8(long p, int n, boolean text) {
        long end = p + n;
        while (p < end) {
            int c = Platform.getByte(null, p) & 0xFF;
            if (c < 0x80) {
                if (text && (c < 0x20 || c == 0x7F)) return false;
                p++;
                continue;
            }
            if (c < 0xC2 || c > 0xF4) return false;
            int more = c < 0xE0 ? 1 : c < 0xF0 ? 2 : 3;
            if (end - p <= more) return false;
            c &= 0x3F >> more;
            for (int k = 1; k <= more; k++) {
                int next = Platform.getByte(null, p + k);
                if ((next & 0xC0) != 0x80) return false;
                c = c << 6 | next & 0x3F;
            }
            if (more == 2 && (c < 0x800 || c >= 0xD800 && c <= 0xDFFF)) return false;
            if (more == 3 && (c < 0x10000 || c > 0x10FFFF)) return false;
            if (text && (c < 0xA0 || c >= 0xFDD0 && c <= 0xFDEF || (c & 0xFFFE) == 0xFFFE)) return false;
            p += more + 1;
        }
        return true;
    }
}
