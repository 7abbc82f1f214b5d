package echomesh;

/** Records that came with their places: of many topics together, since there may be one of each of ten thousand. */
final class Carried {
    private final Place[] places;
    private final Rows rows;
    private final Records records = new Records();
    private Chunk chunk;

    Carried(Place[] places, Rows rows) {
        this.places = places;
        this.rows = rows;
    }

    /**
     * Fills the rows with those of the places from this one on that have some; the first place that is not in them. One
     * whose records are damaged or odd is not.
     */
    int read(int next) {
        if (places[next].size == 0) return next;
        if (chunk == null) chunk = Chunk.take(Chunk.BYTES);
        rows.beginMany(chunk.memory);
        int at = 0;
        for (; next < places.length; next++) {
            Place place = places[next];
            int before = rows.count;
            long events = place.until - place.start;
            if (place.size == 0 || place.size > chunk.size - at || events > Rows.MOST - before) break;
            chunk.put(at, place.told, place.records, place.size);
            records.turn(place.first, 0, -1);
            int end = records.add(rows, chunk, at, at + place.size, place.start, place.until);
            if (rows.count - before != events) {
                rows.undo(before);
                break;
            }
            rows.of(before, place.topic, place.start);
            at = end;
        }
        return next;
    }

    void close() {
        if (chunk != null) chunk.give();
        chunk = null;
    }
}
