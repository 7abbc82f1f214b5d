package echomesh;

import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;

/** Where offsets of a topic stand: in a segment, in a stage that is one, or without a path: at a server, if any. */
final class Place {
    final int range; // its number among the ranges of the task
    final String topic;
    final long start;
    final long until;
    final String path; // or empty
    final byte[] head; // with which the file begins; else it is another one by now
    final long position; // of a record, and its offset
    final long first;
    final long shift; // in a stage: what is added to its rows' numbers
    final long timeNs; // and when all of them were appended; -1 in a segment

    private Place(ByteBuffer told) {
        range = told.getInt();
        start = told.getLong();
        until = told.getLong();
        position = told.getLong();
        first = told.getLong();
        shift = told.getLong();
        timeNs = told.getLong();
        told.getInt(); // how long the rest is
        topic = new String(bytes(told), StandardCharsets.UTF_8);
        path = new String(bytes(told), StandardCharsets.UTF_8);
        head = bytes(told);
    }

    private static byte[] bytes(ByteBuffer told) {
        byte[] found = new byte[told.getInt()];
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
