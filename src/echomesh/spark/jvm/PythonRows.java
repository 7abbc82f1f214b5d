package echomesh;

import java.io.IOException;

import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.connector.metric.CustomTaskMetric;
import org.apache.spark.sql.connector.read.PartitionReader;
import org.apache.spark.sql.execution.RowToColumnConverter;
import org.apache.spark.sql.execution.vectorized.OnHeapColumnVector;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.vectorized.ColumnarBatch;

/** What the source in Python reads of a partition, as columns. */
final class PythonRows {
    static final int MOST = 1024;

    private final PartitionReader rows;
    private final int most;
    private final RowToColumnConverter converter;
    private final OnHeapColumnVector[] columns;
    private final ColumnarBatch batch;

    PythonRows(PartitionReader rows, StructType schema, int most) {
        this.rows = rows;
        this.most = most;
        converter = new RowToColumnConverter(schema);
        columns = OnHeapColumnVector.allocateColumns(most, schema);
        batch = new ColumnarBatch(columns);
    }

    /** Some more, in the place of those before; null when there are none. */
    ColumnarBatch next() throws IOException {
        int count = 0;
        for (int i = 0; i < columns.length; i++) columns[i].reset();
        while (count < most && rows.next()) {
            converter.convert((InternalRow) rows.get(), columns);
            count++;
        }
        batch.setNumRows(count);
        return count == 0 ? null : batch;
    }

    CustomTaskMetric[] metrics() {
        return rows.currentMetricsValues();
    }

    void close() throws IOException {
        rows.close(); // the columns may be in use, and are on the heap
    }
}
