package echomesh;

import java.io.IOException;

/** Gives the rows of places, some at a time. */
interface Source {
    int GOOD = 0;
    int GONE = 1; // or damaged, or it ends too early, or is not there
    int ODD_EVENT = 2;

    /** The rows from here on are wanted of this place; false when there are none to be had. */
    boolean turn(int number, Place place) throws IOException;

    /** Fills the rows with the next events from the offset `start` on; those before it are passed over. */
    int read(Rows rows, long start);

    void close() throws IOException;
}
