package echomesh;

import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.InvalidPathException;
import java.nio.file.LinkOption;
import java.nio.file.NoSuchFileException;

import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.BufferedFSInputStream;
import org.apache.hadoop.fs.FSDataInputStream;
import org.apache.hadoop.fs.FSInputStream;
import org.apache.hadoop.fs.FileStatus;
import org.apache.hadoop.fs.FileSystem;
import org.apache.hadoop.fs.Path;
import org.apache.hadoop.fs.PathFilter;
import org.apache.spark.sql.execution.streaming.checkpointing.CheckpointFileManager;
import org.apache.spark.unsafe.Platform;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * Keeps a checkpoint on this machine by Java's own calls. Hadoop starts a process for each file of it, and syncs none.
 *
 * What Spark sees is the same: names, errors, what is replaced and what is not.
 */
final class LocalFiles implements CheckpointFileManager {
    private static final Logger LOG = LoggerFactory.getLogger("echomesh");
    private static final LinkOption[] FOLLOWING = new LinkOption[0];
    private static final int BUFFER = 1 << 13;

    private final Path root;
    private final Snapshots snapshots = new Snapshots();
    private volatile boolean tried; // whether directories can be synced here
    private volatile boolean syncs;

    LocalFiles(Path root) {
        this.root = root;
    }

    /** Whether this is a place on the machine, by its scheme or by the default one. */
    static boolean has(Path path, Configuration settings) {
        String scheme = path.toUri().getScheme();
        String host = path.toUri().getAuthority();
        if (scheme == null) scheme = FileSystem.getDefaultUri(settings).getScheme();
        if (!Local.SCHEME.equalsIgnoreCase(scheme) || host != null && !host.isEmpty()) return false;
        try {
            Local.at(path);
            return true;
        } catch (InvalidPathException error) {
            return false; // letters that the locale does not have, which Hadoop writes as question marks
        }
    }

    @Override public CheckpointFileManager.CancellableFSDataOutputStream createAtomic(Path path, boolean replaces) {
        try {
            java.nio.file.Path place = Local.at(path);
            if (!tried) trySync(place.getParent());
            return new NewFile.Stream(new NewFile(this, place, replaces));
        } catch (IOException error) {
            throw raised(error);
        }
    }

    @Override public FSDataInputStream open(Path path) {
        try {
            FSInputStream file = new OldFile(Local.at(path));
            return new FSDataInputStream(new BufferedFSInputStream(file, BUFFER));
        } catch (IOException error) {
            throw raised(error);
        }
    }

    @Override public FileStatus[] list(Path path, PathFilter filter) {
        try {
            return Local.list(Local.whole(path), filter);
        } catch (IOException error) {
            throw raised(error);
        }
    }

    @Override public FileStatus[] list(Path path) {
        return list(path, null);
    }

    @Override public void mkdirs(Path path) {
        try {
            Local.make(Local.at(path));
        } catch (IOException error) {
            throw raised(error);
        }
    }

    @Override public boolean exists(Path path) {
        return Files.exists(Local.at(path), FOLLOWING);
    }

    @Override public void delete(Path path) {
        try {
            java.nio.file.Path place = Local.at(path);
            Files.deleteIfExists(Local.sums(place)); // first: without the file they would be held against the next one
            Local.remove(place);
        } catch (IOException error) {
            throw raised(error);
        }
    }

    @Override public boolean isLocal() {
        return true;
    }

    @Override public Path createCheckpointDirectory() {
        mkdirs(root);
        return Local.whole(root);
    }

    @Override public void close() {
        // nothing is kept open
    }

    /** Makes names in this directory outlast a power cut, where the file system can do that at all. */
    void sync(java.nio.file.Path directory) throws IOException {
        if (syncs) Local.sync(directory);
    }

    /** The same of what a file names, before it is there. */
    void syncNamedBy(java.nio.file.Path file) throws IOException {
        if (syncs) snapshots.sync(file);
    }

    // Some file systems refuse to sync directories. That is found out before anything is written: an error that comes
    // later is one of the disk.
    private void trySync(java.nio.file.Path directory) {
        try {
            Local.sync(directory);
            syncs = true;
        } catch (NoSuchFileException error) {
            return; // the file can't be made either
        } catch (IOException error) {
            LOG.warn("a checkpoint may lose its last batches in a power cut: " + directory + " can't be synced", error);
        }
        tried = true;
    }

    // Spark's signatures are Scala's, which know no checked exceptions.
    private static RuntimeException raised(IOException error) {
        Platform.throwException(Local.asHadoop(error));
        return new IllegalStateException();
    }
}
