package echomesh;

import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.LinkOption;
import java.nio.file.NoSuchFileException;
import java.nio.file.Path;
import java.util.HashSet;
import java.util.Iterator;

/**
 * The files that a snapshot of RocksDB consists of. Spark copies them by Hadoop's file system, which syncs nothing, and
 * then makes a file that names them, by us: when that is on the disk they have to be, too.
 */
final class Snapshots {
    private static final LinkOption[] FOLLOWING = new LinkOption[0];

    private HashSet synced = new HashSet();

    /** Syncs what this file names, and Spark has put beside it. */
    synchronized void sync(Path file) throws IOException {
        Path directory = file.resolveSibling("SSTs");
        if (!file.getFileName().toString().endsWith(".zip") || !Files.isDirectory(directory, FOLLOWING)) return;
        HashSet found = new HashSet();
        for (Iterator all = Local.inside(directory).iterator(); all.hasNext();) {
            Path one = (Path) all.next();
            try {
                // One that is just being copied looks another way later.
                String name = one.getFileName().toString();
                String look = name + " " + Files.size(one) + " " + Files.getLastModifiedTime(one, FOLLOWING);
                if (!synced.contains(look)) Local.sync(one);
                found.add(look);
            } catch (NoSuchFileException error) {
                // too old for any snapshot, and removed
            }
        }
        Local.sync(directory);
        synced = found;
    }
}
