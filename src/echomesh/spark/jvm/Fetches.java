package echomesh;

import java.io.IOException;
import java.util.ArrayDeque;

import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * Fetches places from a server. How far an answer goes is known only when it is there, so what comes behind it is asked
 * for by a guess of where it ends, made from the answers before; the next places too, since there may be thousands.
 */
final class Fetches implements Source {
    private static final Logger LOG = LoggerFactory.getLogger("echomesh");
    private static final int BYTES = 3 << 18; // of an answer
    private static final int MOST_BYTES = (1 << 20) - (1 << 12); // so that it fits into a chunk
    private static final long AHEAD_BYTES = 3 * BYTES; // are on their way
    private static final int AHEAD = 64; // requests

    private final Server server;
    private final Place[] places;
    private final Records records = new Records();
    private final ArrayDeque asked = new ArrayDeque(); // those that are not answered
    private Visit visit;
    private boolean broken;
    private Place place;
    private int number; // of the place
    private int ahead; // the place that is asked for next, from this offset on
    private long from;
    private double bytes; // of an event, as far as known
    private int at; // in the answer
    private int end;
    private long next; // what comes behind the answer

    /** A request on its way. */
    private static final class Asked {
        final int number;
        final long from;
        final long until;
        final long bytes;

        Asked(int number, long from, long until, long bytes) {
            this.number = number;
            this.from = from;
            this.until = until;
            this.bytes = bytes;
        }
    }

    Fetches(Server server, Place[] places) {
        this.server = server;
        this.places = places;
    }

    @Override public boolean turn(int number, Place place) {
        this.number = number;
        this.place = place;
        at = 0;
        end = 0;
        next = place.start;
        return !broken;
    }

    @Override public int read(Rows rows, long start) {
        try {
            while (true) {
                if (at == end || start >= next) {
                    if (!answered(Math.max(start, next))) return GONE;
                }
                rows.begin(visit.chunk.memory, start);
                at = records.add(rows, visit.chunk, at, end, start, Math.min(next, place.until));
                if ((at == end) != (records.expected == next)) throw new IOException("other records than it says");
                if (rows.count > 0) return GOOD;
                if (records.odd) return ODD_EVENT;
                if (at < end) throw new IOException("a record is damaged");
            }
        } catch (IOException error) {
            LOG.info("echomesh: Python goes on from " + start + " of " + place.topic + ": " + error.getMessage());
            give();
            return GONE;
        }
    }

    /** Receives what begins with this offset of the place; false when it is lost. */
    private boolean answered(long start) throws IOException {
        if (visit == null) visit = Visit.to(server);
        Asked first = (Asked) asked.peek();
        if (first == null || first.number != number || first.from != start) restart(start); // it does not join on
        Answer found;
        try {
            askMore();
            found = visit.receive();
        } catch (IOException error) {
            if (!visit.used) throw error;
            visit.close(); // it was closed while nobody used it
            visit = Visit.anew(server);
            asked.clear();
            restart(start);
            askMore();
            found = visit.receive();
        }
        visit.used = false;
        first = (Asked) asked.poll();
        if (found.status != 0 || !found.isOf(server.logId)) throw new IOException("the server refused it");
        if (found.lost) {
            drain();
            return false;
        }
        long count = found.next - start;
        if (found.offset != start || count <= 0 || found.next > first.until) throw new IOException("other offsets");
        bytes = (double) (found.end - found.records) / count;
        at = found.records;
        end = found.end;
        next = found.next;
        records.turn(start, found.shift, found.timeNs);
        return true;
    }

    private void restart(long offset) throws IOException {
        drain();
        ahead = number;
        from = offset;
    }

    private void askMore() throws IOException {
        long onTheWay = 0;
        Object[] waiting = asked.toArray();
        for (int i = 0; i < waiting.length; i++) onTheWay += ((Asked) waiting[i]).bytes;
        while (asked.isEmpty() || bytes > 0 && onTheWay < AHEAD_BYTES && asked.size() < AHEAD) {
            while (ahead < places.length && from == places[ahead].until) {
                if (++ahead < places.length) from = places[ahead].start;
            }
            if (ahead == places.length) return;
            Place wanted = places[ahead];
            long until = bytes == 0 ? wanted.until : Math.min(wanted.until, from + Math.max(1, (long) (BYTES / bytes)));
            Asked one = new Asked(ahead, from, until, bytes == 0 ? BYTES : (long) (bytes * (until - from)));
            visit.ask(wanted.topic.toString(), from, until, MOST_BYTES);
            asked.add(one);
            onTheWay += one.bytes;
            from = until;
        }
    }

    /** Passes over what is on its way: it is not what is wanted. */
    private void drain() throws IOException {
        for (; !asked.isEmpty(); asked.poll()) visit.receive();
    }

    private void give() {
        broken = true;
        if (visit != null) visit.close();
        visit = null;
    }

    @Override public void close() {
        if (visit == null) return;
        try {
            drain();
            visit.leave();
        } catch (IOException error) {
            visit.close();
        }
        visit = null;
    }
}
