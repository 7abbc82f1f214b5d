package echomesh;

import java.io.FileNotFoundException;
import java.io.IOException;
import java.net.URI;
import java.nio.channels.ClosedByInterruptException;
import java.nio.channels.FileChannel;
import java.nio.file.DirectoryIteratorException;
import java.nio.file.DirectoryStream;
import java.nio.file.Files;
import java.nio.file.LinkOption;
import java.nio.file.NoSuchFileException;
import java.nio.file.Paths;
import java.nio.file.StandardOpenOption;
import java.nio.file.attribute.BasicFileAttributes;
import java.nio.file.attribute.FileAttribute;
import java.util.ArrayDeque;
import java.util.ArrayList;
import java.util.Collections;
import java.util.Iterator;
import java.util.Set;

import org.apache.hadoop.fs.FileStatus;
import org.apache.hadoop.fs.Path;
import org.apache.hadoop.fs.PathFilter;
import org.slf4j.LoggerFactory;

/** What Hadoop's local file system does, by Java's own calls. */
final class Local {
    static final String SCHEME = "file";
    private static final URI ROOT = URI.create("file:///");
    private static final Set READ = Collections.singleton(StandardOpenOption.READ);
    private static final FileAttribute[] NONE = new FileAttribute[0];
    private static final LinkOption[] FOLLOWING = new LinkOption[0];
    private static final LinkOption[] ITSELF = new LinkOption[] {LinkOption.NOFOLLOW_LINKS};

    private Local() {
    }

    /** The path with scheme and all that is above it. */
    static Path whole(Path path) {
        return path.makeQualified(ROOT, new Path(System.getProperty("user.dir")));
    }

    static java.nio.file.Path at(Path path) {
        URI whole = whole(path).toUri();
        if (!SCHEME.equalsIgnoreCase(whole.getScheme())) throw new IllegalArgumentException("not local: " + path);
        return Paths.get(whole.getPath(), new String[0]);
    }

    /** Where Hadoop has the sums of a file. It would find that another content is damaged. */
    static java.nio.file.Path sums(java.nio.file.Path place) {
        return place.resolveSibling("." + place.getFileName() + ".crc");
    }

    /** What is in a directory, without Hadoop's sums and what killed drivers did not finish; or the file itself. */
    static FileStatus[] list(Path path, PathFilter filter) throws IOException {
        java.nio.file.Path place = at(path);
        ArrayList found = new ArrayList();
        if (!Files.isDirectory(place, FOLLOWING)) {
            found.add(status(path, place));
        } else {
            for (Iterator all = inside(place).iterator(); all.hasNext();) {
                java.nio.file.Path one = (java.nio.file.Path) all.next();
                String name = one.getFileName().toString();
                Path told = new Path(path, new Path(null, null, name)); // as it is, with colons
                if (isHidden(name) || filter != null && !filter.accept(told)) continue;
                try {
                    found.add(status(told, one));
                } catch (NoSuchFileException error) {
                    // it has gone since
                }
            }
        }
        return (FileStatus[]) found.toArray(new FileStatus[found.size()]);
    }

    private static boolean isHidden(String name) {
        return name.startsWith(".") && (name.endsWith(".crc") || name.endsWith(NewFile.UNFINISHED));
    }

    private static FileStatus status(Path path, java.nio.file.Path place) throws IOException {
        BasicFileAttributes found = Files.readAttributes(place, BasicFileAttributes.class, FOLLOWING);
        return new FileStatus(found.size(), found.isDirectory(), 1, 0, found.lastModifiedTime().toMillis(), path);
    }

    static ArrayList inside(java.nio.file.Path directory) throws IOException {
        ArrayList found = new ArrayList();
        DirectoryStream all = Files.newDirectoryStream(directory);
        try {
            for (Iterator each = all.iterator(); each.hasNext();) found.add(each.next());
        } catch (DirectoryIteratorException error) {
            throw error.getCause();
        } finally {
            all.close();
        }
        return found;
    }

    /** Makes a directory and those above it. */
    static void make(java.nio.file.Path directory) throws IOException {
        // Java's own call for that refuses a link to a directory, in Java 17.
        ArrayDeque missing = new ArrayDeque();
        for (java.nio.file.Path at = directory; at != null && !Files.isDirectory(at, FOLLOWING); at = at.getParent()) {
            missing.push(at);
        }
        while (!missing.isEmpty()) {
            java.nio.file.Path next = (java.nio.file.Path) missing.pop();
            try {
                Files.createDirectory(next, NONE);
            } catch (java.nio.file.FileAlreadyExistsException error) {
                if (!Files.isDirectory(next, FOLLOWING)) throw error;
            }
            try {
                sync(next.getParent());
            } catch (IOException error) { // who may write there need not be allowed to read
                LoggerFactory.getLogger("echomesh").warn(next + " may be gone after a power cut", error);
            }
        }
    }

    /** Removes a file, or a directory with all that is in it; links, and not what they lead to. */
    static void remove(java.nio.file.Path place) throws IOException {
        if (Files.isDirectory(place, ITSELF)) {
            try {
                for (Iterator all = inside(place).iterator(); all.hasNext();) remove((java.nio.file.Path) all.next());
            } catch (NoSuchFileException error) {
                return; // somebody else removed it
            }
        }
        Files.deleteIfExists(place);
    }

    /** Makes a file, or the names in a directory, outlast a power cut. */
    static void sync(java.nio.file.Path place) throws IOException {
        boolean interrupted = false;
        while (true) {
            try {
                FileChannel channel = FileChannel.open(place, READ, NONE);
                try {
                    channel.force(true);
                } finally {
                    channel.close();
                }
                break;
            } catch (ClosedByInterruptException error) { // as by query.stop(): what was begun is finished first
                interrupted |= Thread.interrupted();
            }
        }
        if (interrupted) Thread.currentThread().interrupt();
    }

    /** The same in Hadoop's words, by which Spark tells a second driver from a broken disk. */
    static IOException asHadoop(IOException error) {
        IOException told = error;
        if (error instanceof NoSuchFileException) told = new FileNotFoundException(error.getMessage());
        if (error instanceof java.nio.file.FileAlreadyExistsException) {
            told = new org.apache.hadoop.fs.FileAlreadyExistsException(error.getMessage() + " exists already");
        }
        if (told != error) told.initCause(error);
        return told;
    }
}
