package echomesh;

import java.io.IOException;

import org.apache.spark.sql.connector.metric.CustomTaskMetric;
import org.apache.spark.sql.connector.read.InputPartition;
import org.apache.spark.sql.connector.read.PartitionReader;
import org.apache.spark.sql.connector.read.PartitionReaderFactory;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.vectorized.ColumnarBatch;

/** Makes the readers of tasks: columns from files where the places are known, rows from Python elsewhere. */
final class Readers implements PartitionReaderFactory {
    private final PartitionReaderFactory python;
    private final StructType schema;

    Readers(PartitionReaderFactory python, StructType schema) {
        this.python = python;
        this.schema = schema;
    }

    @Override public boolean supportColumnarReads(InputPartition partition) {
        return partition instanceof Split;
    }

    @Override public PartitionReader createReader(InputPartition partition) {
        return python.createReader(partition instanceof Split ? ((Split) partition).python : partition);
    }

    @Override public PartitionReader createColumnarReader(InputPartition partition) {
        if (partition instanceof Split) return new Reader((Split) partition, python, schema);
        return new Converted(new PythonRows(python.createReader(partition), schema, PythonRows.MOST));
    }

    /** All of a partition as Python reads it, where columns were promised before there was a plan. */
    private static final class Converted implements PartitionReader {
        private final PythonRows rows;
        private ColumnarBatch batch;

        Converted(PythonRows rows) {
            this.rows = rows;
        }

        @Override public boolean next() throws IOException {
            batch = rows.next();
            return batch != null;
        }

        @Override public Object get() {
            return batch;
        }

        @Override public CustomTaskMetric[] currentMetricsValues() {
            return rows.metrics();
        }

        @Override public void close() throws IOException {
            rows.close();
        }
    }
}
