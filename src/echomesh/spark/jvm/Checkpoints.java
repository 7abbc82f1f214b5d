package echomesh;

import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.FSDataInputStream;
import org.apache.hadoop.fs.FileStatus;
import org.apache.hadoop.fs.Path;
import org.apache.hadoop.fs.PathFilter;
import org.apache.spark.sql.execution.streaming.checkpointing.CheckpointFileManager;
import org.apache.spark.sql.execution.streaming.checkpointing.CheckpointFileManager$;

/** Keeps the checkpoints of queries: on this machine by `LocalFiles`, anywhere else as Spark does by itself. */
public final class Checkpoints implements CheckpointFileManager {
    private static final String SETTING = "spark.sql.streaming.checkpointFileManagerClass";

    private final CheckpointFileManager files;

    /** Spark makes one for each log and each state store, by this signature. */
    public Checkpoints(Path path, Configuration settings) {
        files = LocalFiles.has(path, settings) ? (CheckpointFileManager) new LocalFiles(path) : ofSpark(path, settings);
    }

    private static CheckpointFileManager ofSpark(Path path, Configuration settings) {
        Configuration others = new Configuration(settings);
        others.unset(SETTING);
        return CheckpointFileManager$.MODULE$.create(path, others);
    }

    @Override public CheckpointFileManager.CancellableFSDataOutputStream createAtomic(Path path, boolean replaces) {
        return files.createAtomic(path, replaces);
    }

    @Override public FSDataInputStream open(Path path) {
        return files.open(path);
    }

    @Override public FileStatus[] list(Path path, PathFilter filter) {
        return files.list(path, filter);
    }

    @Override public FileStatus[] list(Path path) {
        return files.list(path);
    }

    @Override public void mkdirs(Path path) {
        files.mkdirs(path);
    }

    @Override public boolean exists(Path path) {
        return files.exists(path);
    }

    @Override public void delete(Path path) {
        files.delete(path);
    }

    @Override public boolean isLocal() {
        return files.isLocal();
    }

    @Override public Path createCheckpointDirectory() {
        return files.createCheckpointDirectory();
    }

    @Override public void close() {
        files.close();
    }
}
