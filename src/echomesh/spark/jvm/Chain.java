package echomesh;

import java.util.zip.CRC32C;

import org.apache.spark.unsafe.Platform;

/**
 * Checks the sums of records that stand one behind the other, all at once. The sum of a few hundred bytes takes twice the
 * time for each byte that the sum of many thousand takes.
 *
 * A message that is followed by its own sum leaves the sum in a state that does not depend on the message, if both are
 * good. So each sum is written behind its record, where there is room: what fills it up, and the length of the next one.
 * And to begin with another state is the same as to begin with other first bytes. With these, the whole run has the sum of
 * its last record. One that is damaged changes the state, and whatever good ones follow can't change it back.
 */
final class Chain {
    static final int MOST = 1 << 10; // records of a run
    static final int BYTES = 1 << 16; // of a run, about: it is looked at again soon, and should still be near
    private static final int[] LINKS = links();

    int count;
    private final int[] at = new int[MOST];
    private final int[] lengths = new int[MOST];
    private final int[] sums = new int[MOST];
    private final CRC32C sum = new CRC32C();
    private Chunk chunk;
    private int pad; // behind the last record
    private int last; // its sum

    // What the first bytes of a record are changed by that so many zeros stand before, and before them a sum.
    private static int[] links() {
        CRC32C sum = new CRC32C();
        sum.update(0);
        int of = (int) sum.getValue();
        for (int shift = 0; shift < 32; shift += 8) sum.update(of >>> shift);
        int[] found = new int[8];
        for (int zeros = 0; zeros < found.length; zeros++) {
            found[zeros] = (int) sum.getValue();
            sum.update(0);
        }
        return found;
    }

    void begin(Chunk chunk) {
        this.chunk = chunk;
        count = 0;
    }

    /** The next record, which begins right behind the one before and is filled up with zeros. */
    void add(int begin, int padded) {
        int i = count;
        long memory = chunk.memory + begin;
        int length = Platform.getInt(null, memory);
        int sum = Platform.getInt(null, memory + 4);
        // A sum is of the length and of what follows the sum: with the length in its place they are one piece.
        int link = 0;
        if (i > 0) {
            link = LINKS[pad];
            Platform.putInt(null, memory, 0);
            Platform.putLong(null, memory - pad, last & 0xFFFFFFFFL);
        }
        Platform.putInt(null, memory + 4, length ^ link);
        at[i] = begin;
        lengths[i] = length;
        sums[i] = sum;
        pad = padded - length;
        last = sum;
        count = i + 1;
    }

    int begin(int number) {
        return at[number];
    }

    int end(int number) {
        return at[number] + lengths[number];
    }

    /** How many are good, from the first one on. */
    int good() {
        int last = count - 1;
        if (last < 0 || summed(at[0], end(last)) == sums[last]) return count;
        restore(0);
        for (int i = 0; i < count; i++) {
            Platform.putInt(null, chunk.memory + at[i] + 4, lengths[i]);
            int found = summed(at[i], end(i));
            Platform.putInt(null, chunk.memory + at[i] + 4, sums[i]);
            if (found != sums[i]) return i;
        }
        return count;
    }

    private int summed(int begin, int end) {
        sum.reset();
        sum.update(chunk.bytes(begin + 4, end));
        return (int) sum.getValue();
    }

    /** Makes the records from this one on what they were. */
    void restore(int from) {
        for (int i = from; i < count; i++) {
            long memory = chunk.memory + at[i];
            for (int behind = i > 0 ? end(i - 1) : at[i]; behind < at[i]; behind++) {
                Platform.putByte(null, chunk.memory + behind, (byte) 0);
            }
            Platform.putInt(null, memory, lengths[i]);
            Platform.putInt(null, memory + 4, sums[i]);
        }
    }
}
