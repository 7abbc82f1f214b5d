package echomesh;

import java.io.BufferedOutputStream;
import java.io.FileOutputStream;
import java.io.IOException;
import java.io.OutputStream;
import java.nio.file.CopyOption;
import java.nio.file.FileAlreadyExistsException;
import java.nio.file.FileSystemException;
import java.nio.file.Files;
import java.nio.file.LinkOption;
import java.nio.file.Path;
import java.nio.file.StandardCopyOption;
import java.util.UUID;

import org.apache.spark.TaskContext;
import org.apache.spark.sql.execution.streaming.checkpointing.CheckpointFileManager;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/** A file of a checkpoint that is there as a whole when it is closed, and on the disk; or not at all. */
final class NewFile extends OutputStream {
    static final String UNFINISHED = ".tmp";
    private static final Logger LOG = LoggerFactory.getLogger("echomesh");
    private static final int BUFFER = 1 << 15;
    private static final LinkOption[] ITSELF = new LinkOption[] {LinkOption.NOFOLLOW_LINKS};
    private static final CopyOption[] ATOMIC = new CopyOption[] {StandardCopyOption.ATOMIC_MOVE};

    private final LocalFiles files;
    private final Path place;
    private final Path fresh;
    private final boolean replaces;
    private final FileOutputStream raw; // no channel, which an interrupt would close in the middle
    private final BufferedOutputStream buffered;
    private IOException failure;
    private boolean over;

    NewFile(LocalFiles files, Path place, boolean replaces) throws IOException {
        this.files = files;
        this.place = place;
        this.replaces = replaces;
        fresh = place.resolveSibling(hidden(place.getFileName().toString()));
        raw = new FileOutputStream(fresh.toFile());
        buffered = new BufferedOutputStream(raw, BUFFER);
    }

    // As Spark calls them, so that whoever looks into a checkpoint knows them.
    private static String hidden(String name) {
        TaskContext task = TaskContext.get();
        String of = task == null ? "" : ".TID" + task.taskAttemptId();
        return "." + name + "." + UUID.randomUUID() + of + UNFINISHED;
    }

    @Override public synchronized void write(int value) throws IOException {
        write(new byte[] {(byte) value}, 0, 1);
    }

    @Override public synchronized void write(byte[] bytes, int from, int length) throws IOException {
        if (over) throw new IOException(place + " is closed");
        try {
            buffered.write(bytes, from, length);
        } catch (IOException error) {
            throw failed(error);
        }
    }

    @Override public synchronized void flush() throws IOException {
        if (over) return;
        try {
            buffered.flush();
        } catch (IOException error) {
            throw failed(error);
        }
    }

    @Override public synchronized void close() throws IOException {
        if (failure != null) throw new IOException(place + " was not written", failure);
        if (over) return;
        try {
            buffered.flush();
            raw.getFD().sync();
            raw.close();
            publish();
            over = true;
        } catch (IOException error) {
            throw failed(error);
        }
    }

    synchronized void cancel() {
        if (!over) drop();
        failure = null; // who gave it up may close it
    }

    private void publish() throws IOException {
        Path directory = place.getParent();
        Path sums = Local.sums(place);
        files.syncNamedBy(place);
        // Sums that Hadoop made of what was here before go first, and for good: a file without sums is fine for it, one
        // with others is damaged.
        if ((replaces || !Files.exists(place, ITSELF)) && Files.deleteIfExists(sums)) files.sync(directory);
        if (replaces) {
            Files.move(fresh, place, ATOMIC);
        } else {
            link();
        }
        files.sync(directory);
    }

    /** A link to what exists fails, whoever made it, and a rename replaces it. */
    private void link() throws IOException {
        try {
            Files.createLink(place, fresh);
        } catch (FileAlreadyExistsException error) {
            // A network file system that asked twice says so of its own link.
            if (!Files.isSameFile(place, fresh)) throw error;
        } catch (FileSystemException error) {
            moveIfFree();
            return;
        } catch (UnsupportedOperationException error) {
            moveIfFree();
            return;
        }
        Files.deleteIfExists(fresh);
    }

    // A file system without links: Spark looks and renames too, so a second driver may come in between.
    private void moveIfFree() throws IOException {
        if (Files.exists(place, ITSELF)) throw new FileAlreadyExistsException(place.toString());
        Files.move(fresh, place, ATOMIC);
    }

    private IOException failed(IOException error) {
        drop();
        failure = Local.asHadoop(error);
        return failure;
    }

    private void drop() {
        over = true;
        try {
            raw.close();
        } catch (IOException error) {
            LOG.warn("closing " + fresh, error);
        }
        try {
            Files.deleteIfExists(fresh);
        } catch (IOException error) {
            LOG.warn(fresh + " is left behind", error);
        }
    }

    /** The same as Spark wants it. */
    static final class Stream extends CheckpointFileManager.CancellableFSDataOutputStream {
        private final NewFile file;

        Stream(NewFile file) {
            super(file);
            this.file = file;
        }

        @Override public void close() throws IOException {
            file.close();
        }

        @Override public void cancel() {
            file.cancel();
        }
    }
}
