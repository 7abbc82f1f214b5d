package echomesh;

import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.Decimal;
import org.apache.spark.sql.vectorized.ColumnVector;
import org.apache.spark.sql.vectorized.ColumnarArray;
import org.apache.spark.sql.vectorized.ColumnarMap;
import org.apache.spark.unsafe.types.UTF8String;

/** A column that has nothing of its own; each kind shows what it is asked for by its type, and never anything else. */
abstract class View extends ColumnVector {
    View(DataType type) {
        super(type);
    }

    @Override public void close() { }

    @Override public boolean hasNull() {
        return true; // maybe
    }

    @Override public int numNulls() {
        return 0;
    }

    @Override public boolean isNullAt(int row) {
        return false;
    }

    private RuntimeException other() {
        return new UnsupportedOperationException("a column of " + type.simpleString());
    }

    @Override public boolean getBoolean(int row) { throw other(); }
    @Override public byte getByte(int row) { throw other(); }
    @Override public short getShort(int row) { throw other(); }
    @Override public int getInt(int row) { throw other(); }
    @Override public long getLong(int row) { throw other(); }
    @Override public float getFloat(int row) { throw other(); }
    @Override public double getDouble(int row) { throw other(); }
    @Override public ColumnarArray getArray(int row) { throw other(); }
    @Override public ColumnarMap getMap(int row) { throw other(); }
    @Override public Decimal getDecimal(int row, int precision, int scale) { throw other(); }
    @Override public UTF8String getUTF8String(int row) { throw other(); }
    @Override public byte[] getBinary(int row) { throw other(); }
    @Override public ColumnVector getChild(int ordinal) { throw other(); }
}
