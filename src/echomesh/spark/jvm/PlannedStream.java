package echomesh;

import org.apache.spark.sql.connector.read.InputPartition;
import org.apache.spark.sql.connector.read.PartitionReaderFactory;
import org.apache.spark.sql.connector.read.streaming.MicroBatchStream;
import org.apache.spark.sql.connector.read.streaming.Offset;
import org.apache.spark.sql.connector.read.streaming.ReadLimit;
import org.apache.spark.sql.connector.read.streaming.SupportsTriggerAvailableNow;
import org.apache.spark.sql.types.StructType;

/** The stream of the source in Python, but for what tasks are given. */
final class PlannedStream implements MicroBatchStream, SupportsTriggerAvailableNow {
    private final MicroBatchStream python;
    private final SupportsTriggerAvailableNow limits; // the same
    private final StructType schema;
    private InputPartition[] planned; // the batch that was asked for last, and its ends
    private Offset plannedFrom;
    private Offset plannedTo;

    PlannedStream(MicroBatchStream python, StructType schema) {
        this.python = python;
        this.limits = (SupportsTriggerAvailableNow) python;
        this.schema = schema;
    }

    // Spark asks for each copy that it makes of a plan, to know whether there are columns.
    @Override public synchronized InputPartition[] planInputPartitions(Offset start, Offset end) {
        if (planned == null || start != plannedFrom || end != plannedTo) {
            planned = Split.all(python.planInputPartitions(start, end));
            plannedFrom = start;
            plannedTo = end;
        }
        return planned;
    }

    @Override public PartitionReaderFactory createReaderFactory() {
        return new Readers(python.createReaderFactory(), schema);
    }

    @Override public Offset initialOffset() {
        return python.initialOffset();
    }

    @Override public Offset deserializeOffset(String json) {
        return python.deserializeOffset(json);
    }

    @Override public Offset latestOffset() {
        return python.latestOffset();
    }

    @Override public Offset latestOffset(Offset start, ReadLimit limit) {
        return limits.latestOffset(start, limit);
    }

    @Override public ReadLimit getDefaultReadLimit() {
        return limits.getDefaultReadLimit();
    }

    @Override public Offset reportLatestOffset() {
        return limits.reportLatestOffset();
    }

    @Override public void prepareForTriggerAvailableNow() {
        limits.prepareForTriggerAvailableNow();
    }

    @Override public void commit(Offset end) {
        python.commit(end);
    }

    @Override public void stop() {
        python.stop();
    }

    @Override public String toString() {
        return python.toString();
    }
}
