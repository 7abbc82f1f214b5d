package echomesh;

import java.io.Serializable;

/** Where a task fetches what it reads, and with which ticket. It shows itself to nobody. */
final class Server implements Serializable {
    final String host;
    final int port;
    final String clientId;
    final String environment;
    final String scope; // the filters that the ticket is for
    final String ticket;
    final byte[] logId;
    final String trusted; // certificates as PEM; null for a connection without TLS

    private Server(Object[] given) {
        host = (String) given[0];
        port = ((Number) given[1]).intValue();
        clientId = (String) given[2];
        environment = (String) given[3];
        scope = (String) given[4];
        ticket = (String) given[5];
        logId = (byte[]) given[6];
        trusted = (String) given[7];
    }

    static Server of(Object[] given) {
        return given == null ? null : new Server(given);
    }

    /** What connections have in common that one task may use after another. */
    String key() {
        return host + '\n' + port + '\n' + clientId + '\n' + environment + '\n' + scope + '\n' + trusted;
    }
}
