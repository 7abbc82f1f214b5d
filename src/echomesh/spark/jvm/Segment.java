package echomesh;

import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.channels.FileChannel;
import java.nio.file.Paths;
import java.nio.file.StandardOpenOption;
import java.util.Arrays;
import java.util.concurrent.ConcurrentHashMap;

/** Reads places where they lie: in segments, or in stages that are segments now. */
final class Segment implements Source {
    private static final int KNOWN = 1 << 16;
    private static final int PAGE = 4096;

    // Where the last task that read a file came to an end: the next one begins there, and need not look for it.
    private static final ConcurrentHashMap ENDS = new ConcurrentHashMap();

    private final Records records = new Records();
    private Chunk chunk = Chunk.take(Chunk.BYTES);
    private Place place;
    private FileChannel channel;
    private long position; // in the file, of the next record
    private boolean remembered; // so that may be of another file, which had the same name
    private boolean whole; // a few pages are not enough

    @Override public boolean turn(int number, Place next) throws IOException {
        leave();
        if (next.path.isEmpty() || !open(next)) return false;
        place = next;
        position = place.position;
        records.turn(place, place.first);
        long[] known = (long[]) ENDS.get(place.path);
        remembered = known != null && known[0] > place.first && known[0] <= place.start;
        if (remembered) {
            records.expected = known[0];
            position = known[1];
        }
        return true;
    }

    // Not kept open for the next task: Spark starts processes for its checkpoints, and those go through all open files.
    private boolean open(Place next) throws IOException {
        try {
            channel = FileChannel.open(Paths.get(next.path), StandardOpenOption.READ);
            ByteBuffer head = ByteBuffer.allocate(next.head.length);
            while (head.hasRemaining() && channel.read(head, head.position()) > 0);
            if (Arrays.equals(head.array(), next.head)) return true;
        } catch (IOException error) {
            // as if it were gone: Python says what is wrong
        }
        leave();
        return false;
    }

    @Override public int read(Rows rows, long start) {
        int state = filled(rows, start);
        if (state == GONE && remembered) {
            ENDS.remove(place.path);
            position = place.position;
            records.expected = place.first;
            state = filled(rows, start);
        }
        remembered = false;
        return state;
    }

    private int filled(Rows rows, long start) {
        whole = false;
        while (true) {
            int most = wanted();
            int there = load(most);
            if (there < 0) return GONE;
            rows.begin(chunk.memory, start);
            int at = records.add(rows, chunk, 0, there, start, place.until);
            position += at;
            if (rows.count > 0) break;
            if (records.odd) return ODD_EVENT;
            if (records.expected == place.until || records.bad || there < most) return GONE;
            if (at == 0 && most == chunk.size) larger();
            whole = at == 0;
        }
        if (records.expected == place.until) {
            if (ENDS.size() > KNOWN) ENDS.clear();
            ENDS.put(place.path, new long[] {records.expected, position});
        }
        return GOOD;
    }

    private void larger() {
        int needed = Records.needed(chunk);
        chunk.give();
        chunk = Chunk.take(needed);
    }

    /** Of a few events not many pages are read: there may be thousands of topics with one each. */
    private int wanted() {
        long left = Math.max(place.until - records.expected, 4);
        return whole || left > chunk.size / PAGE ? chunk.size : (int) left * PAGE;
    }

    private int load(int most) {
        ByteBuffer into = chunk.empty(most);
        try {
            channel.read(into, position); // less only where the file ends
        } catch (IOException error) {
            return -1;
        }
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
