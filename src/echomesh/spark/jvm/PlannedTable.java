package echomesh;

import java.util.Set;

import org.apache.spark.sql.connector.catalog.SupportsRead;
import org.apache.spark.sql.connector.catalog.SupportsWrite;
import org.apache.spark.sql.connector.catalog.Table;
import org.apache.spark.sql.connector.metric.CustomMetric;
import org.apache.spark.sql.connector.read.Batch;
import org.apache.spark.sql.connector.read.InputPartition;
import org.apache.spark.sql.connector.read.PartitionReaderFactory;
import org.apache.spark.sql.connector.read.Scan;
import org.apache.spark.sql.connector.read.ScanBuilder;
import org.apache.spark.sql.connector.read.SupportsPushDownFilters;
import org.apache.spark.sql.connector.read.streaming.MicroBatchStream;
import org.apache.spark.sql.connector.read.streaming.SupportsTriggerAvailableNow;
import org.apache.spark.sql.connector.write.LogicalWriteInfo;
import org.apache.spark.sql.connector.write.WriteBuilder;
import org.apache.spark.sql.sources.Filter;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.util.CaseInsensitiveStringMap;

/**
 * The table of the source in Python, which answers whatever it is asked, up to what tasks are given: those get `Split`
 * and `Readers`. Offsets, limits and what is lost are planned in Python alone.
 */
final class PlannedTable implements SupportsRead, SupportsWrite {
    private final Table python;

    PlannedTable(Table python) {
        this.python = python;
    }

    @Override public String name() {
        return python.name();
    }

    @Override public StructType schema() {
        return python.schema();
    }

    @Override public Set capabilities() {
        return python.capabilities();
    }

    @Override public ScanBuilder newScanBuilder(CaseInsensitiveStringMap options) {
        ScanBuilder found = ((SupportsRead) python).newScanBuilder(options);
        return found instanceof SupportsPushDownFilters ? new PlannedBuilder((SupportsPushDownFilters) found) : found;
    }

    @Override public WriteBuilder newWriteBuilder(LogicalWriteInfo info) {
        return ((SupportsWrite) python).newWriteBuilder(info);
    }

    private static final class PlannedBuilder implements SupportsPushDownFilters {
        private final SupportsPushDownFilters python;

        PlannedBuilder(SupportsPushDownFilters python) {
            this.python = python;
        }

        @Override public Filter[] pushFilters(Filter[] filters) {
            return python.pushFilters(filters);
        }

        @Override public Filter[] pushedFilters() {
            return python.pushedFilters();
        }

        @Override public Scan build() {
            return new PlannedScan(python.build());
        }
    }

    private static final class PlannedScan implements Scan {
        private final Scan python;
        private Batch batch;
        private PlannedStream stream;

        PlannedScan(Scan python) {
            this.python = python;
        }

        @Override public StructType readSchema() {
            return python.readSchema();
        }

        @Override public String description() {
            return "(echomesh)";
        }

        @Override public CustomMetric[] supportedCustomMetrics() {
            return python.supportedCustomMetrics();
        }

        // Python's own scan never has columns; here each plan tells. A stream that has them goes on with them, so that Spark
        // need not wait for its plan before it makes its own.
        @Override public synchronized Scan.ColumnarSupportMode columnarSupportMode() {
            boolean ahead = stream != null && stream.hasColumns();
            return ahead ? Scan.ColumnarSupportMode.SUPPORTED : Scan.ColumnarSupportMode.PARTITION_DEFINED;
        }

        @Override public synchronized Batch toBatch() {
            if (batch == null) batch = new PlannedBatch(python.toBatch(), readSchema());
            return batch;
        }

        @Override public synchronized MicroBatchStream toMicroBatchStream(String checkpoint) {
            MicroBatchStream found = python.toMicroBatchStream(checkpoint);
            if (!(found instanceof SupportsTriggerAvailableNow)) return found;
            stream = new PlannedStream(found, readSchema());
            return stream;
        }
    }

    private static final class PlannedBatch implements Batch {
        private final Batch python;
        private final StructType schema;
        private InputPartition[] planned;

        PlannedBatch(Batch python, StructType schema) {
            this.python = python;
            this.schema = schema;
        }

        // Spark asks for each copy that it makes of a plan, to know whether there are columns.
        @Override public synchronized InputPartition[] planInputPartitions() {
            if (planned == null) planned = Split.all(python.planInputPartitions());
            return planned;
        }

        @Override public PartitionReaderFactory createReaderFactory() {
            return new Readers(python.createReaderFactory(), schema);
        }
    }
}
