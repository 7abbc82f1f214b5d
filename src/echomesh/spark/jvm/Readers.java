package echomesh;

import org.apache.spark.sql.connector.read.InputPartition;
import org.apache.spark.sql.connector.read.PartitionReader;
import org.apache.spark.sql.connector.read.PartitionReaderFactory;
import org.apache.spark.sql.types.StructType;

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
        return new Reader((Split) partition, python, schema);
    }
}
