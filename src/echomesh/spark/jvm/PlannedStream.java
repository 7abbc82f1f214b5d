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
    private boolean columns; // the last plan that was not empty had some
    private boolean promised; // for this batch: Spark asks several times, and has to hear the same
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
        InputPartition[] found = plan.partitions();
        if (found.length > 0) columns = found[0] instanceof Split;
        return found;
    }

    /** Whether tasks give columns in any case, as those before did. */
    synchronized boolean hasColumns() {
        return promised;
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
        promised = columns;
        from = start;
        to = answers.answered(limits.latestOffset(answers.brief(start), limit), start);
        if (answers.reported() != null) planAhead();
        return to;
    }

    @Override public synchronized ReadLimit getDefaultReadLimit() {
        settle();
        return limits.getDefaultReadLimit();
    }

    // The last question before Spark writes, and one to which the answer is often known.
    @Override public synchronized Offset reportLatestOffset() {
        if (answers.reported() != null) return answers.reported();
        settle();
        Offset found = limits.reportLatestOffset();
        planAhead();
        return found == null ? null : answers.heard(found);
    }

    private void planAhead() {
        if (to == null || to.equals(from) || plan != null && plan.isOf(from, to)) return;
        plan = new Plan(python, answers, from, to);
        plan.begin();
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
