package echomesh;

import java.lang.reflect.Method;
import java.nio.ByteBuffer;
import java.util.concurrent.ConcurrentLinkedQueue;

import org.apache.spark.unsafe.Platform;

/**
 * Memory that files are read into, outside of the heap: what is read there need not be copied once more. It lies at
 * `memory`; a few bytes behind the end may be looked at, since words are looked at whole.
 */
final class Chunk {
    static final int BYTES = 1 << 20;
    private static final int SLACK = 16;
    private static final ConcurrentLinkedQueue FREE = new ConcurrentLinkedQueue(); // as many as tasks ran at once
    private static final Method ADDRESS = address();

    final int size;
    final long memory;
    private final ByteBuffer buffer;

    private Chunk(int size) {
        this.size = size;
        buffer = ByteBuffer.allocateDirect(size + SLACK);
        try {
            memory = ((Long) ADDRESS.invoke(buffer, new Object[0])).longValue();
        } catch (ReflectiveOperationException error) {
            throw new IllegalStateException(error);
        }
    }

    // Spark opens this package of Java's for itself.
    private static Method address() {
        try {
            Method found = Class.forName("sun.nio.ch.DirectBuffer").getMethod("address", new Class[0]);
            found.setAccessible(true);
            return found;
        } catch (Exception error) {
            throw new IllegalStateException(error);
        }
    }

    static Chunk take(int size) {
        Chunk found = size == BYTES ? (Chunk) FREE.poll() : null;
        return found == null ? new Chunk(size) : found;
    }

    void give() {
        if (size == BYTES) FREE.add(this);
    }

    /** Where so many bytes are to be read into. */
    ByteBuffer empty(int most) {
        buffer.clear().limit(most);
        return buffer;
    }

    void put(int at, byte[] from, int begin, int many) {
        Platform.copyMemory(from, Platform.BYTE_ARRAY_OFFSET + begin, null, memory + at, many);
    }

    ByteBuffer bytes(int from, int until) {
        buffer.limit(until).position(from);
        return buffer;
    }
}
