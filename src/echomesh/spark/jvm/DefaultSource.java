package echomesh;

import java.util.Map;

import org.apache.spark.sql.connector.catalog.Table;
import org.apache.spark.sql.connector.expressions.Transform;
import org.apache.spark.sql.execution.datasources.v2.python.PythonDataSourceV2;
import org.apache.spark.sql.types.StructType;

/**
 * What Spark finds for format("echomesh") where this package is on its class path: the source in Python, whose tasks
 * read segments inside the JVM.
 */
public class DefaultSource extends PythonDataSourceV2 {
    @Override public Table getTable(StructType schema, Transform[] partitioning, Map properties) {
        return new PlannedTable(super.getTable(schema, partitioning, properties));
    }
}
