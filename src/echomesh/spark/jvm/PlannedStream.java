package echomesh;

import org.apache.spark.sql.connector.read.InputPartition;
import org.apache.spark.sql.connector.read.PartitionReaderFactory;
import org.apache.spark.sql.connector.read.streaming.MicroBatchStream;
import org.apache.spark.sql.connector.read.streaming.Offset;
import org.apache.spark.sql.connector.read.streaming.ReadLimit;
import org.apache.spark.sql.connector.read.streaming.SupportsTriggerAvailableNow;
import org.apache.spark.sql.types.StructType;

/**
 * The stream of the source in Python, but for what tasks are given. That is planned while Spark writes down where the batch
 * ends: Python has nothing else to do then.
 */
final class PlannedStream implements MicroBatchStream, SupportsTriggerAvailableNow {
    private final MicroBatchStream python;
    private final SupportsTriggerAvailableNow limits; // the same
    private final StructType schema;
    private final Answers answers;
    private Plan plan; // of the batch that was asked for last
    private Offset from; // the ends of the batch that was measured last
    private Offset to;

    PlannedStream(MicroBatchStream python, StructType schema) {
        this.python = python;
        this.limits = (SupportsTriggerAvailableNow) python;
        this.schema = schema;
        this.answers = new Answers(python);
    }

    // Spark asks for each copy that it makes of a plan, to know whether there are columns.
    @Override public synchronized InputPartition[] planInputPartitions(Offset start, Offset end) {
        if (plan == null || !plan.isOf(start, end)) {
            settle();
            plan = new Plan(python, answers, start, end);
        }
        return plan.partitions();
    }

    // Python answers one question after the other, and none when it failed at a plan: that is what there is to say then.
    private void settle() {
        if (plan != null) plan.partitions();
    }

    @Override public PartitionReaderFactory createReaderFactory() {
        return new Readers(python.createReaderFactory(), schema);
    }

    @Override public synchronized Offset initialOffset() {
        settle();
        return python.initialOffset();
    }

    @Override public Offset deserializeOffset(String json) {
        return python.deserializeOffset(json);
    }

    @Override public synchronized Offset latestOffset() {
        settle();
        return python.latestOffset();
    }

    @Override public synchronized Offset latestOffset(Offset start, ReadLimit limit) {
        settle();
        from = start;
        to = answers.answered(limits.latestOffset(answers.brief(start), limit), start);
        return to;
    }

    @Override public synchronized ReadLimit getDefaultReadLimit() {
        settle();
        return limits.getDefaultReadLimit();
    }

    // The last question before Spark writes.
    @Override public synchronized Offset reportLatestOffset() {
        settle();
        Offset found = limits.reportLatestOffset();
        if (to != null && !to.equals(from)) {
            plan = new Plan(python, answers, from, to);
            plan.begin();
            to = null;
        }
        return found == null ? null : answers.reported(found);
    }

    @Override public synchronized void prepareForTriggerAvailableNow() {
        settle();
        limits.prepareForTriggerAvailableNow();
    }

    // Readers leave no trace in a log: there is nothing to tell Python.
    @Override public void commit(Offset end) { }

    @Override public void stop() {
        python.stop();
    }

    @Override public String toString() {
        return python.toString();
    }
}
