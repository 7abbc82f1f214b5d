package echomesh;

import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;

import org.apache.spark.unsafe.types.UTF8String;

/**
 * Where offsets of a topic stand: in a segment, in a stage that is one, or without a path: at a server, if any. A few small
 * records come with it.
 */
final class Place {
    private static final byte[] EMPTY = new byte[0];

    final int range; // its number among the ranges of the task
    final UTF8String topic;
    final long start;
    final long until;
    final String path; // or empty
    final byte[] head; // with which the file begins; else it is another one by now
    final long position; // of a record, and its offset
    final long first;
    final long shift; // in a stage: what is added to its rows' numbers
    final long timeNs; // and when all of them were appended; -1 in a segment
    final byte[] told; // has the records themselves, if any
    final int records; // where they begin
    final int size; // of them, or 0

    private Place(ByteBuffer told) {
        range = told.getInt();
        start = told.getLong();
        until = told.getLong();
        position = told.getLong();
        first = told.getLong();
        shift = told.getLong();
        timeNs = told.getLong();
        told.getInt(); // how long the rest is
        int size = told.getInt();
        topic = UTF8String.fromBytes(told.array(), told.position(), size);
        told.position(told.position() + size);
        path = new String(bytes(told), StandardCharsets.UTF_8);
        head = bytes(told);
        this.size = told.getInt();
        records = told.position();
        this.told = told.array();
        told.position(records + this.size);
    }

    private static byte[] bytes(ByteBuffer told) {
        int size = told.getInt();
        if (size == 0) return EMPTY;
        byte[] found = new byte[size];
        told.get(found);
        return found;
    }

    /** Those that places.py has told. */
    static Place[] all(byte[] told) {
        List found = new ArrayList();
        ByteBuffer left = ByteBuffer.wrap(told).order(ByteOrder.LITTLE_ENDIAN);
        while (left.hasRemaining()) found.add(new Place(left));
        return (Place[]) found.toArray(new Place[0]);
    }
}
