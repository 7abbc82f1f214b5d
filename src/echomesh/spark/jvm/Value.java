package echomesh;

import java.time.LocalDate;
import java.time.YearMonth;

import org.apache.spark.unsafe.Platform;

/** One value of MessagePack, as an event may have it: where it stands, or its number. */
final class Value {
    static final int STR = 1;
    static final int BIN = 2;
    static final int INT = 3;
    static final int BOOL = 4;
    static final int TIME = 5;

    private static final long FIRST_SECOND = -62135596800L; // of the years 1 to 9999
    private static final long LAST_SECOND = 253402300799L;

    int kind;
    int body;
    int size;
    long number; // of an int or bool; of a time, microseconds

    /** Reads the value at `p`; where the next one begins, or -1 for what no event has, or goes on behind the end. */
    int read(long memory, int p, int end) {
        if (p >= end) return -1;
        int t = Platform.getByte(null, memory + p) & 0xFF;
        return t >= 0xA0 && t <= 0xBF ? text(STR, p + 1, t & 31, end) : other(memory, p, end, t);
    }

    private int other(long memory, int p, int end, int t) {
        int left = end - p - 1;
        if (t < 0x80 || t >= 0xE0) return number((byte) t, p + 1);
        switch (t) {
            case 0xC2: case 0xC3:
                kind = BOOL;
                number = t & 1;
                return p + 1;
            case 0xC4: case 0xD9:
                return left < 1 ? -1 : text(t == 0xC4 ? BIN : STR, p + 2, big(memory + p + 1, 1), end);
            case 0xC5: case 0xDA:
                return left < 2 ? -1 : text(t == 0xC5 ? BIN : STR, p + 3, big(memory + p + 1, 2), end);
            case 0xC6: case 0xDB:
                return left < 4 ? -1 : text(t == 0xC6 ? BIN : STR, p + 5, big(memory + p + 1, 4), end);
            case 0xC7:
                return left < 2 || at(memory + p + 2) != -1 ? -1 : text(TIME, p + 3, big(memory + p + 1, 1), end);
            case 0xD6: case 0xD7:
                return left < 1 || at(memory + p + 1) != -1 ? -1 : text(TIME, p + 2, t == 0xD6 ? 4 : 8, end);
            case 0xCC: case 0xCD: case 0xCE: {
                int n = 1 << t - 0xCC;
                return left < n ? -1 : number(big(memory + p + 1, n), p + 1 + n);
            }
            case 0xD0: case 0xD1: case 0xD2: {
                int n = 1 << t - 0xD0;
                int unused = 64 - 8 * n;
                return left < n ? -1 : number(big(memory + p + 1, n) << unused >> unused, p + 1 + n);
            }
            default:
                return -1;
        }
    }

    private int text(int kind, int body, long size, int end) {
        this.kind = kind;
        this.body = body;
        this.size = (int) size;
        return size <= end - body ? body + (int) size : -1;
    }

    private int number(long number, int next) {
        kind = INT;
        this.number = number;
        return next;
    }

    static long big(long p, int n) {
        long found = 0;
        for (int i = 0; i < n; i++) found = found << 8 | Platform.getByte(null, p + i) & 0xFF;
        return found;
    }

    /** A timestamp as microseconds since 1970, rounded as the decoder in Python does; false for no such time. */
    boolean stamp(long memory) {
        long seconds;
        long nanos = 0;
        if (size == 4) {
            seconds = big(memory + body, 4);
        } else if (size == 8) {
            long both = big(memory + body, 8);
            seconds = both & (1L << 34) - 1;
            nanos = both >>> 34;
        } else if (size == 12) {
            nanos = big(memory + body, 4);
            seconds = big(memory + body + 4, 8);
        } else {
            return false;
        }
        if (nanos > 999999999L || seconds < FIRST_SECOND || seconds > LAST_SECOND) return false;
        number = seconds * 1000000 + (nanos + 500) / 1000;
        return number <= LAST_SECOND * 1000000 + 999999;
    }

    /** An ordinary RFC 3339 time as microseconds since 1970; false for leap seconds, the first and last year. */
    boolean parse(long memory) {
        long p = memory + body;
        long end = p + size;
        if (size < 20 || at(p + 4) != '-' || at(p + 7) != '-' || (at(p + 10) | 32) != 't') return false;
        if (at(p + 13) != ':' || at(p + 16) != ':') return false;
        int year = digits(p, 4);
        int month = digits(p + 5, 2);
        int day = digits(p + 8, 2);
        int hour = digits(p + 11, 2);
        int minute = digits(p + 14, 2);
        int second = digits(p + 17, 2);
        if (year < 2 || year > 9998 || month < 1 || month > 12 || day < 1) return false;
        if (day > 28 && day > YearMonth.of(year, month).lengthOfMonth()) return false;
        if (hour < 0 || hour > 23 || minute < 0 || minute > 59 || second < 0 || second > 59) return false;
        long i = p + 19;
        int micros = 0;
        if (at(i) == '.') {
            int k = 0;
            for (i++; i < end && at(i) >= '0' && at(i) <= '9'; i++) if (k++ < 6) micros = micros * 10 + at(i) - '0';
            if (k == 0) return false;
            for (; k < 6; k++) micros *= 10;
        }
        int zone = 0;
        if (i == end - 6 && (at(i) == '+' || at(i) == '-') && at(i + 3) == ':') {
            int hours = digits(i + 1, 2);
            int minutes = digits(i + 4, 2);
            if (hours < 0 || hours > 23 || minutes < 0 || minutes > 59) return false;
            zone = (hours * 60 + minutes) * (at(i) == '-' ? -1 : 1);
        } else if (i != end - 1 || (at(i) | 32) != 'z') {
            return false;
        }
        long days = LocalDate.of(year, month, day).toEpochDay();
        number = ((days * 1440 + hour * 60 + minute - zone) * 60 + second) * 1000000 + micros;
        return true;
    }

    private static byte at(long p) {
        return Platform.getByte(null, p);
    }

    private static int digits(long p, int n) {
        int found = 0;
        for (int i = 0; i < n; i++) {
            int digit = at(p + i) - '0';
            if (digit < 0 || digit > 9) return -1;
            found = found * 10 + digit;
        }
        return found;
    }
}
