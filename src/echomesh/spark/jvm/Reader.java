package echomesh;

import java.io.IOException;

import org.apache.spark.sql.connector.metric.CustomTaskMetric;
import org.apache.spark.sql.connector.read.PartitionReader;
import org.apache.spark.sql.connector.read.PartitionReaderFactory;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.vectorized.ColumnarBatch;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * The rows of one task, place by place. Whatever this code does not know for sure, from a file that is gone to an event
 * that looks odd, is left to the source in Python, which reads the same offsets and says what is wrong with them.
 */
final class Reader implements PartitionReader {
    private static final Logger LOG = LoggerFactory.getLogger("echomesh");
    private static final long NEAR = 1 << 14; // events that Python reads where many are odd, before this looks again

    private final Split split;
    private final PartitionReaderFactory factory;
    private final StructType schema;
    private final Rows rows;
    private final Columns columns;
    private final Place[] places;
    private final Carried carried;
    private int next;
    private Place place;
    private long offset; // of the next row
    private Source source;
    private boolean there; // the source has this place
    private PythonRows python;
    private ColumnarBatch batch;

    Reader(Split split, PartitionReaderFactory factory, StructType schema) {
        this.split = split;
        this.factory = factory;
        this.schema = schema;
        // An event that is none fails the query when it is asked for; one to be passed over must be known before.
        this.rows = new Rows(Columns.wanted(schema), new Judge(), !split.failOnDataLoss);
        this.columns = new Columns(schema, rows, this);
        this.places = split.places();
        this.carried = new Carried(places, rows);
        this.source = split.server == null ? new Segment() : new Fetches(split.server, places);
    }

    @Override public boolean next() throws IOException {
        while (true) {
            if (python != null) {
                batch = python.next();
                if (batch != null) return true;
                python.close();
                python = null;
            } else if (place == null || offset == place.until) {
                if (next == places.length) return false;
                int behind = carried.read(next);
                if (behind > next) {
                    next = behind;
                    batch = columns.batch();
                    return true;
                }
                place = places[next];
                there = source.turn(next++, place);
                offset = place.start;
                columns.turn(place.topic);
            } else if (fromSource()) {
                return true;
            }
        }
    }

    private boolean fromSource() throws IOException {
        boolean odd = rows.odd > rows.count / 4; // of the batch before
        int state = there && !odd ? source.read(rows, offset) : Source.GONE;
        if (state == Source.GOOD) {
            offset += rows.count;
            batch = columns.batch();
            return true;
        }
        long until = odd || state == Source.ODD_EVENT ? Math.min(place.until, offset + NEAR) : place.until;
        python = fromPython(offset, until, PythonRows.MOST);
        offset = until;
        rows.begin(0, until);
        return false;
    }

    private PythonRows fromPython(long start, long until, int most) {
        if (there) {
            LOG.info("Python reads offsets " + start + " to " + (until - 1) + " of " + place.topic);
        }
        return new PythonRows(factory.createReader(split.narrowed(place.range, start, until)), schema, most);
    }

    /** All rows of these offsets as Python reads them, to stay. */
    ColumnarBatch odd(long start, long until) {
        try {
            int count = (int) (until - start);
            PythonRows found = fromPython(start, until, count);
            ColumnarBatch all = found.next();
            found.close();
            if (all != null && all.numRows() == count) return all;
            throw new IllegalStateException("Python did not read all of " + count + " events");
        } catch (IOException error) {
            throw new IllegalStateException(error);
        }
    }

    @Override public Object get() {
        return batch;
    }

    @Override public CustomTaskMetric[] currentMetricsValues() {
        return python == null ? new CustomTaskMetric[0] : python.metrics();
    }

    @Override public void close() throws IOException {
        if (python != null) python.close();
        if (source != null) source.close();
        carried.close();
        python = null;
        source = null;
    }
}
