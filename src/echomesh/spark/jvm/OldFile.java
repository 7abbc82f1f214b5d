package echomesh;

import java.io.EOFException;
import java.io.FileNotFoundException;
import java.io.IOException;
import java.io.RandomAccessFile;
import java.nio.file.Files;
import java.nio.file.LinkOption;
import java.nio.file.Path;

import org.apache.hadoop.fs.FSInputStream;

/** A file of a checkpoint that is read. */
final class OldFile extends FSInputStream {
    private static final LinkOption[] FOLLOWING = new LinkOption[0];

    private final RandomAccessFile file; // no channel, which an interrupt would close

    OldFile(Path place) throws IOException {
        try {
            file = new RandomAccessFile(place.toFile(), "r");
        } catch (FileNotFoundException error) {
            // Java says so of files that may not be read, too: Spark would take them for batches that were never begun.
            if (Files.exists(place, FOLLOWING)) throw new IOException(error.getMessage(), error);
            throw error;
        }
    }

    @Override public synchronized int read() throws IOException {
        return file.read();
    }

    @Override public synchronized int read(byte[] into, int from, int length) throws IOException {
        return file.read(into, from, length);
    }

    @Override public synchronized void seek(long position) throws IOException {
        if (position < 0 || position > file.length()) throw new EOFException("no position " + position);
        file.seek(position);
    }

    @Override public synchronized long getPos() throws IOException {
        return file.getFilePointer();
    }

    @Override public boolean seekToNewSource(long position) {
        return false; // there is no other copy
    }

    @Override public synchronized int available() throws IOException {
        return (int) Math.min(Integer.MAX_VALUE, file.length() - file.getFilePointer());
    }

    @Override public void close() throws IOException {
        file.close();
    }
}
