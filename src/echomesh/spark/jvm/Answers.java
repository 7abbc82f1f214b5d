package echomesh;

import java.io.IOException;
import java.io.UncheckedIOException;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import org.apache.spark.sql.connector.read.streaming.MicroBatchStream;
import org.apache.spark.sql.connector.read.streaming.Offset;

/**
 * Offsets as Python says and hears them: there may be ten thousand topics in each, so what Python answered last is told
 * it by its number. See answers.py.
 */
final class Answers {
    private static final ObjectMapper JSON = new ObjectMapper();

    private final MicroBatchStream python;
    private final Offset[] said = new Offset[2]; // the last ones
    private final long[] numbers = new long[2];
    private Offset heard; // what else Python said last
    private Offset reported; // where the log ended at the last answer, as far as that is known

    Answers(MicroBatchStream python) {
        this.python = python;
    }

    /** As Python is told of it. */
    Offset brief(Offset offset) {
        for (int i = 0; i < said.length; i++) {
            if (offset.equals(said[i])) return python.deserializeOffset("{\"answer\": " + numbers[i] + "}");
        }
        return python.deserializeOffset("{\"offset\": " + offset.json() + "}");
    }

    /** What Python answered when it was told of this offset: that again, where nothing is new. */
    Offset answered(Offset answer, Offset asked) {
        JsonNode found = read(answer);
        reported = null;
        if (!found.has("text")) return asked;
        said[0] = said[1];
        numbers[0] = numbers[1];
        said[1] = text(found);
        numbers[1] = found.get("answer").longValue();
        if (found.has("lost")) reported = upTo(said[1].json(), found.get("lost").longValue());
        return said[1];
    }

    /** As Python would say it. */
    private Offset upTo(String whole, long lost) {
        String ends = whole.substring(0, whole.lastIndexOf(",\"events\":"));
        return python.deserializeOffset(ends + ",\"lost\":" + lost + "}");
    }

    /** Where the log ends, if the last answer told. */
    Offset reported() {
        return reported;
    }

    /** What Python says besides, or said before. */
    Offset heard(Offset found) {
        JsonNode read = read(found);
        if (!read.has("same")) heard = read.has("text") ? text(read) : found;
        return heard;
    }

    private Offset text(JsonNode found) {
        return python.deserializeOffset(found.get("text").textValue());
    }

    private static JsonNode read(Offset answer) {
        try {
            return JSON.readTree(answer.json());
        } catch (IOException error) {
            throw new UncheckedIOException(error);
        }
    }
}
