package echomesh;

import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.channels.FileChannel;
import java.nio.file.Paths;
import java.nio.file.StandardOpenOption;
import java.nio.file.attribute.FileAttribute;
import java.util.Collections;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;

import org.apache.spark.unsafe.Platform;

/** Reads places where they lie: in segments, or in stages that are segments now. */
final class Segment implements Source {
    private static final int KNOWN = 1 << 16;
    private static final int PAGE = 4096;
    private static final int LITTLE = 128;
    private static final int NEAR = PAGE; // from the file's begin: all from there on is read at once
    private static final Set READ = Collections.singleton(StandardOpenOption.READ);
    private static final FileAttribute[] NONE = new FileAttribute[0];

    // Where the last task that read a file came to an end, and how many bytes a record had: the next one begins there, and
    // need not look for it.
    private static final ConcurrentHashMap ENDS = new ConcurrentHashMap();

    private final Records records = new Records();
    private Chunk chunk = Chunk.take(Chunk.BYTES);
    private Place place;
    private FileChannel channel;
    private long position; // in the file, of the next record
    private boolean checked; // it begins as it should, so it is that file
    private boolean remembered; // the position may be of another file, which had the same name
    private boolean whole; // a few pages are not enough
    private long typical; // bytes of a record, by those that were read last; 0 where that is not known

    // Not kept open for the next task: Spark starts processes for its checkpoints, and those go through all open files.
    @Override public boolean turn(int number, Place next) throws IOException {
        leave();
        if (next.path.isEmpty()) return false;
        try {
            channel = FileChannel.open(Paths.get(next.path), READ, NONE);
        } catch (IOException error) {
            return false; // Python says what is wrong
        }
        place = next;
        checked = false;
        position = place.position;
        records.turn(place.first, place.shift, place.timeNs);
        long[] known = (long[]) ENDS.get(place.path);
        typical = known == null ? 0 : known[2];
        remembered = known != null && known[0] > place.first && known[0] <= place.start;
        if (remembered) {
            records.expected = known[0];
            position = known[1];
        }
        return true;
    }

    @Override public int read(Rows rows, long start) {
        try {
            int state = filled(rows, start);
            if (state == GONE && remembered) {
                ENDS.remove(place.path);
                position = place.position;
                records.expected = place.first;
                state = filled(rows, start);
            }
            remembered = false;
            return state;
        } catch (IOException error) {
            return GONE;
        }
    }

    private int filled(Rows rows, long start) throws IOException {
        whole = false;
        while (true) {
            int most = wanted();
            int begin = checked || position > NEAR || most == chunk.size ? 0 : (int) position;
            int there = load(position - begin, begin + most);
            if (!checked && !isIt(begin > 0)) return GONE;
            rows.begin(chunk.memory, start);
            long before = records.expected;
            int at = records.add(rows, chunk, begin, there, start, place.until);
            position += at - begin;
            if (records.expected > before) typical = (at - begin) / (records.expected - before);
            if (rows.count > 0) break;
            if (records.odd) return ODD_EVENT;
            if (records.expected == place.until || records.bad || there < begin + most) return GONE;
            whole = at == begin;
            if (whole && most == chunk.size) larger();
        }
        if (records.expected == place.until) {
            if (ENDS.size() > KNOWN) ENDS.clear();
            ENDS.put(place.path, new long[] {records.expected, position, typical});
        }
        return GOOD;
    }

    /** Whether the file begins with what was told, which may have been read with the rest. */
    private boolean isIt(boolean loaded) throws IOException {
        if (loaded) {
            for (int i = 0; i < place.head.length; i++) {
                if (Platform.getByte(null, chunk.memory + i) != place.head[i]) return false;
            }
        } else {
            ByteBuffer found = ByteBuffer.allocate(place.head.length);
            channel.read(found, 0);
            if (!found.flip().equals(ByteBuffer.wrap(place.head))) return false;
        }
        checked = true;
        return true;
    }

    private void larger() {
        int needed = Records.needed(chunk);
        chunk.give();
        chunk = Chunk.take(needed);
    }

    /**
     * Of a few events not many bytes are read: there may be thousands of topics with one each. What stands behind the last
     * one costs most: the system makes pages for what is reserved and not written.
     */
    private int wanted() {
        long left = place.until - records.expected;
        long guess = typical > 0 ? left * (typical + typical / 4) + LITTLE : Math.max(left, 4) * PAGE;
        return whole || guess > chunk.size - NEAR ? chunk.size : (int) guess;
    }

    private int load(long from, int most) throws IOException {
        ByteBuffer into = chunk.empty(most);
        channel.read(into, from); // less only where the file ends
        return into.position();
    }

    private void leave() throws IOException {
        if (channel != null) channel.close();
        channel = null;
    }

    @Override public void close() throws IOException {
        leave();
        chunk.give();
        chunk = null;
    }
}
