package echomesh;

import java.io.InvalidObjectException;
import java.io.ObjectStreamException;
import java.io.Serializable;
import java.lang.ref.WeakReference;
import java.util.Iterator;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.atomic.AtomicLong;

import org.apache.spark.SparkConf;
import org.apache.spark.SparkEnv;

/** A split on its way to a task in the same JVM: its number will do, and megabytes need not be written and read. */
final class Here implements Serializable {
    private static final AtomicLong LAST = new AtomicLong();
    private static final ConcurrentHashMap SPLITS = new ConcurrentHashMap(); // Spark keeps them as long as it has tasks

    private final long number;

    private Here(long number) {
        this.number = number;
    }

    /** What to write for it. */
    static synchronized Object of(Split split) {
        if (!tasksRunHere()) return split;
        if (split.number == 0) {
            for (Iterator each = SPLITS.values().iterator(); each.hasNext();) {
                if (((WeakReference) each.next()).get() == null) each.remove();
            }
            split.number = LAST.incrementAndGet();
            SPLITS.put(Long.valueOf(split.number), new WeakReference(split));
        }
        return new Here(split.number);
    }

    private static boolean tasksRunHere() {
        SparkConf conf = SparkEnv.get().conf();
        String master = conf.get("spark.master", "");
        boolean sameClasses = !conf.getBoolean("spark.executor.userClassPathFirst", false);
        return sameClasses && (master.equals("local") || master.startsWith("local["));
    }

    // Not private, as in Split.
    Object readResolve() throws ObjectStreamException {
        WeakReference found = (WeakReference) SPLITS.get(Long.valueOf(number));
        Object split = found == null ? null : found.get();
        if (split == null) throw new InvalidObjectException("a task that is no longer wanted");
        return split;
    }
}
