package echomesh;

import java.lang.reflect.Method;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.charset.StandardCharsets;
import java.util.HashMap;
import java.util.Map;

import net.razorvine.pickle.Unpickler;
import org.apache.spark.sql.connector.read.InputPartition;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;
import scala.Product;

/** What one task reads: the partition that Python made, and where in files its rows stand. */
final class Split implements InputPartition {
    private static final Logger LOG = LoggerFactory.getLogger("echomesh");

    final InputPartition python;
    final Server server; // or null, where they are in files
    final boolean failOnDataLoss;
    transient long number; // for tasks of this JVM
    private transient byte[] told; // the places, in the JVM that planned them

    private Split(InputPartition python, Server server, boolean failOnDataLoss, byte[] told) {
        this.python = python;
        this.server = server;
        this.failOnDataLoss = failOnDataLoss;
        this.told = told;
    }

    /** Where they stand: there may be thousands of places, so that they travel once, and as bytes. */
    Place[] places() {
        try {
            return Place.all(told != null ? told : (byte[]) state(python).get("places"));
        } catch (Exception error) {
            throw new IllegalStateException(error);
        }
    }

    // Not private: Janino makes functions of private methods, and Java's serialization would not find it.
    Object writeReplace() {
        return Here.of(this);
    }

    /** The partition for Python with these offsets of one of its ranges alone. */
    InputPartition narrowed(int range, long start, long until) {
        try {
            Product given = (Product) python; // of a kind for batches or for streams
            Object[] parts = new Object[given.productArity()];
            for (int i = 0; i < parts.length; i++) {
                Object part = given.productElement(i);
                parts[i] = part instanceof byte[] ? call((byte[]) part, range, start, until) : part;
            }
            return (InputPartition) python.getClass().getConstructors()[0].newInstance(parts);
        } catch (ReflectiveOperationException error) {
            throw new IllegalStateException(error);
        }
    }

    /** A pickle that is a call of `narrowed` in plan.py with these arguments. */
    private static byte[] call(byte[] pickled, int range, long start, long until) {
        byte[] head = "\u0080\u0003cechomesh.spark.plan\nnarrowed\n(B".getBytes(StandardCharsets.ISO_8859_1);
        byte[] tail = ("I" + range + "\nI" + start + "\nI" + until + "\ntR.").getBytes(StandardCharsets.ISO_8859_1);
        ByteBuffer made = ByteBuffer.allocate(head.length + 4 + pickled.length + tail.length);
        made.put(head).order(ByteOrder.LITTLE_ENDIAN).putInt(pickled.length).put(pickled).put(tail);
        return made.array();
    }

    @Override public String[] preferredLocations() {
        return python.preferredLocations();
    }

    /** With places if all of them have some, else as they are: Spark takes columns from all or from none. */
    static InputPartition[] all(InputPartition[] given) {
        if (ByteOrder.nativeOrder() != ByteOrder.LITTLE_ENDIAN) return given;
        InputPartition[] found = new InputPartition[given.length];
        for (int i = 0; i < given.length; i++) {
            found[i] = of(given[i]);
            if (found[i] == null) return given;
        }
        return found;
    }

    /** What Python pickled of a partition: see `Part`. */
    private static Map state(InputPartition python) throws Exception {
        Method pickled = python.getClass().getMethod("pickedPartition", new Class[0]);
        Object read = new Unpickler().loads((byte[]) pickled.invoke(python, new Object[0]));
        return read instanceof Map ? (Map) read : new HashMap();
    }

    private static Split of(InputPartition python) {
        try {
            Map state = state(python);
            byte[] places = (byte[]) state.get("places");
            if (places == null || places.length == 0) return null;
            boolean fail = ((Boolean) state.get("fail_on_data_loss")).booleanValue();
            return new Split(python, Server.of((Object[]) state.get("server")), fail, places);
        } catch (Exception error) {
            LOG.warn("echomesh: tasks read by Python, since what it planned can't be read here", error);
            return null;
        }
    }
}
