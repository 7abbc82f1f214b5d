package echomesh;

import java.util.Arrays;

import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.DataTypes;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.vectorized.ColumnVector;
import org.apache.spark.sql.vectorized.ColumnarBatch;
import org.apache.spark.sql.vectorized.ColumnarMap;
import org.apache.spark.unsafe.types.UTF8String;

/** The rows as Spark's columns. A value is taken from the bytes that were read when Spark asks for it. */
final class Columns {
    private static final String[] NAMES = {
        "topic", "offset", "timestamp", "time", "id", "source", "type", "subject", "datacontenttype", "dataschema",
        "data", "attributes", "size"
    };
    private static final int SIZE = 12; // of the data

    private final Rows rows;
    private final Reader reader;
    private final ColumnarBatch batch;
    private UTF8String topic;
    private ColumnarBatch odd; // from the first to the last odd row, as Python reads them
    private int oddFrom;

    Columns(StructType schema, Rows rows, Reader reader) {
        this.rows = rows;
        this.reader = reader;
        String[] names = schema.fieldNames();
        ColumnVector[] views = new ColumnVector[names.length];
        for (int i = 0; i < views.length; i++) views[i] = view(number(names[i]), i);
        batch = new ColumnarBatch(views);
    }

    /** The columns of `Rows` that these need. */
    static int wanted(StructType schema) {
        int found = 0;
        String[] names = schema.fieldNames();
        for (int i = 0; i < names.length; i++) {
            int number = number(names[i]);
            found |= 1 << (number == SIZE ? Rows.DATA : number);
        }
        return found;
    }

    private static int number(String name) {
        int found = Arrays.asList(NAMES).indexOf(name);
        if (found < 0) throw new IllegalArgumentException("no column " + name);
        return found;
    }

    private View view(int column, int ordinal) {
        switch (column) {
            case Rows.TOPIC: return new Topic();
            case Rows.OFFSET: return new Offsets();
            case Rows.TIMESTAMP: return new Stamps();
            case Rows.TIME: return new Times(ordinal);
            case Rows.DATA: return new Data(ordinal);
            case Rows.ATTRIBUTES: return new Maps(ordinal);
            case SIZE: return new Sizes(ordinal);
            default: return new Texts(column, ordinal);
        }
    }

    /** The rows that come now are of this topic. */
    void turn(UTF8String name) {
        topic = name;
    }

    ColumnarBatch batch() {
        odd = null;
        batch.setNumRows(rows.count);
        return batch;
    }

    private void parse() {
        rows.parse();
        if (rows.odd == 0) return;
        int[] sizes = null;
        for (int column = Rows.TIME; sizes == null; column++) sizes = rows.sizes[column];
        int last = rows.count - 1;
        for (oddFrom = 0; sizes[oddFrom] != Rows.ODD; oddFrom++);
        for (; sizes[last] != Rows.ODD; last--);
        odd = reader.odd(rows.first + oddFrom, rows.first + last + 1);
    }

    private final class Topic extends View {
        Topic() {
            super(DataTypes.StringType);
        }

        @Override public UTF8String getUTF8String(int row) {
            return rows.many ? rows.topics[row] : topic;
        }
    }

    private final class Offsets extends View {
        Offsets() {
            super(DataTypes.LongType);
        }

        @Override public long getLong(int row) {
            return rows.many ? rows.offsets[row] : rows.first + row;
        }
    }

    private final class Stamps extends View {
        Stamps() {
            super(DataTypes.TimestampType);
        }

        @Override public long getLong(int row) {
            return rows.stamps[row];
        }
    }

    /** A column of the event, which is parsed when it is looked at first. */
    private abstract class OfEvent extends View {
        final int[] at;
        private final int[] sizes;
        private final int ordinal;

        OfEvent(DataType type, int column, int ordinal) {
            super(type);
            at = rows.at[column];
            sizes = rows.sizes[column];
            this.ordinal = ordinal;
        }

        int size(int row) {
            if (!rows.parsed) parse();
            return sizes[row];
        }

        ColumnVector odd() {
            return odd.column(ordinal);
        }

        @Override public boolean isNullAt(int row) {
            int size = size(row);
            return size < 0 && (size == Rows.NONE || odd().isNullAt(row - oddFrom));
        }
    }

    private final class Times extends OfEvent {
        Times(int ordinal) {
            super(DataTypes.TimestampType, Rows.TIME, ordinal);
        }

        @Override public long getLong(int row) {
            return size(row) == Rows.ODD ? odd().getLong(row - oddFrom) : rows.times[row];
        }
    }

    private final class Texts extends OfEvent {
        Texts(int column, int ordinal) {
            super(DataTypes.StringType, column, ordinal);
        }

        @Override public UTF8String getUTF8String(int row) {
            int size = size(row);
            if (size >= 0) return UTF8String.fromAddress(null, rows.memory + at[row], size);
            return size == Rows.NONE ? null : odd().getUTF8String(row - oddFrom);
        }
    }

    private final class Data extends OfEvent {
        Data(int ordinal) {
            super(DataTypes.BinaryType, Rows.DATA, ordinal);
        }

        @Override public byte[] getBinary(int row) {
            int size = size(row);
            if (size >= 0) return Judge.copy(rows.memory + at[row], size);
            return size == Rows.NONE ? null : odd().getBinary(row - oddFrom);
        }
    }

    private final class Sizes extends OfEvent {
        Sizes(int ordinal) {
            super(DataTypes.LongType, Rows.DATA, ordinal);
        }

        @Override public long getLong(int row) {
            int size = size(row);
            return size == Rows.ODD ? odd().getLong(row - oddFrom) : size;
        }
    }

    private final class Maps extends OfEvent {
        private final ColumnVector names = new MapNames();
        private final ColumnVector values = new MapValues();

        Maps(int ordinal) {
            super(DataTypes.createMapType(DataTypes.StringType, DataTypes.StringType), Rows.ATTRIBUTES, ordinal);
        }

        @Override public ColumnarMap getMap(int row) {
            if (size(row) == Rows.ODD) return odd().getMap(row - oddFrom);
            int begin = rows.attributes.begins[row];
            return new ColumnarMap(names, values, begin, rows.attributes.begins[row + 1] - begin);
        }
    }

    private final class MapNames extends View {
        MapNames() {
            super(DataTypes.StringType);
        }

        @Override public UTF8String getUTF8String(int entry) {
            Attributes found = rows.attributes;
            return UTF8String.fromAddress(null, rows.memory + found.names[entry], found.nameSizes[entry]);
        }
    }

    private final class MapValues extends View {
        MapValues() {
            super(DataTypes.StringType);
        }

        @Override public UTF8String getUTF8String(int entry) {
            Attributes found = rows.attributes;
            int at = found.values[entry];
            return at < 0 ? UTF8String.fromBytes(found.made, ~at, found.valueSizes[entry])
                : UTF8String.fromAddress(null, rows.memory + at, found.valueSizes[entry]);
        }
    }
}
