package echomesh;

import java.io.InterruptedIOException;
import java.io.UncheckedIOException;
import java.util.concurrent.Callable;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.FutureTask;

import org.apache.spark.sql.connector.read.InputPartition;
import org.apache.spark.sql.connector.read.streaming.MicroBatchStream;
import org.apache.spark.sql.connector.read.streaming.Offset;

/** What the tasks of one batch read; it is asked for once, and may be before Spark wants to know. */
final class Plan implements Callable {
    private final MicroBatchStream python;
    private final Offset briefStart;
    private final Offset briefEnd;
    private final Offset start;
    private final Offset end;
    private final FutureTask made = new FutureTask(this);

    Plan(MicroBatchStream python, Answers answers, Offset start, Offset end) {
        this.python = python;
        this.briefStart = answers.brief(start);
        this.briefEnd = answers.brief(end);
        this.start = start;
        this.end = end;
    }

    boolean isOf(Offset from, Offset to) {
        return start.equals(from) && end.equals(to);
    }

    void begin() {
        Thread thread = new Thread(made, "echomesh-plan");
        thread.setDaemon(true);
        thread.start();
    }

    @Override public Object call() {
        return Split.all(python.planInputPartitions(briefStart, briefEnd));
    }

    /** Made here, unless it was begun before. */
    InputPartition[] partitions() {
        made.run(); // nothing where it runs or has run
        try {
            return (InputPartition[]) made.get();
        } catch (ExecutionException error) {
            if (error.getCause() instanceof RuntimeException) throw (RuntimeException) error.getCause();
            throw new IllegalStateException(error.getCause());
        } catch (InterruptedException error) {
            throw stopped();
        }
    }

    // Spark knows by such an error that somebody stopped the query.
    private static UncheckedIOException stopped() {
        return new UncheckedIOException(new InterruptedIOException("the query was stopped"));
    }
}
