package echomesh;

import java.io.ByteArrayInputStream;
import java.io.IOException;
import java.io.InputStream;
import java.io.OutputStream;
import java.net.InetSocketAddress;
import java.net.Socket;
import java.net.SocketTimeoutException;
import java.net.StandardSocketOptions;
import java.nio.ByteBuffer;
import java.nio.channels.SelectionKey;
import java.nio.channels.Selector;
import java.nio.channels.SocketChannel;
import java.nio.charset.StandardCharsets;
import java.security.GeneralSecurityException;
import java.security.KeyStore;
import java.security.cert.Certificate;
import java.security.cert.CertificateFactory;
import java.util.Iterator;

import javax.net.ssl.SSLContext;
import javax.net.ssl.SSLParameters;
import javax.net.ssl.SSLSocket;
import javax.net.ssl.TrustManagerFactory;

/** Bytes to a server and back, with TLS or without; nobody waits for ever. */
abstract class Line {
    private static final int CONNECT_MS = 5000;
    private static final int ANSWER_MS = 60000;

    static Line to(Server server) throws IOException {
        return server.trusted == null ? new Plain(server) : new Secured(server);
    }

    abstract void send(ByteBuffer bytes) throws IOException;

    /** Reads until there is no room left. */
    abstract void fill(ByteBuffer into) throws IOException;

    abstract void close();

    /** What comes goes from the kernel to where it stays. */
    private static final class Plain extends Line {
        private final SocketChannel channel;
        private final Selector selector;

        Plain(Server server) throws IOException {
            channel = SocketChannel.open();
            try {
                channel.socket().connect(new InetSocketAddress(server.host, server.port), CONNECT_MS);
                channel.setOption(StandardSocketOptions.TCP_NODELAY, Boolean.TRUE);
                channel.configureBlocking(false);
                selector = Selector.open();
                channel.register(selector, SelectionKey.OP_READ);
            } catch (IOException error) {
                channel.close();
                throw error;
            }
        }

        @Override void send(ByteBuffer bytes) throws IOException {
            while (bytes.hasRemaining()) if (channel.write(bytes) == 0) await(SelectionKey.OP_WRITE);
        }

        @Override void fill(ByteBuffer into) throws IOException {
            while (into.hasRemaining()) {
                int got = channel.read(into);
                if (got < 0) throw new IOException("the server closed the connection");
                if (got == 0) await(SelectionKey.OP_READ);
            }
        }

        private void await(int what) throws IOException {
            channel.keyFor(selector).interestOps(what);
            if (selector.select(ANSWER_MS) == 0) throw new SocketTimeoutException("no answer");
            selector.selectedKeys().clear();
        }

        @Override void close() {
            try {
                selector.close();
                channel.close();
            } catch (IOException error) {
                // it is given up in any case
            }
        }
    }

    private static final class Secured extends Line {
        private final Socket socket;
        private final InputStream in;
        private final OutputStream out;
        private final byte[] piece = new byte[1 << 16];

        Secured(Server server) throws IOException {
            Socket raw = new Socket();
            try {
                raw.connect(new InetSocketAddress(server.host, server.port), CONNECT_MS);
                raw.setTcpNoDelay(true);
                raw.setSoTimeout(ANSWER_MS);
                socket = secured(raw, server);
                in = socket.getInputStream();
                out = socket.getOutputStream();
            } catch (IOException error) {
                raw.close();
                throw error;
            } catch (GeneralSecurityException error) {
                raw.close();
                throw new IOException(error);
            }
        }

        private static Socket secured(Socket raw, Server server) throws IOException, GeneralSecurityException {
            KeyStore known = KeyStore.getInstance(KeyStore.getDefaultType());
            known.load(null, null);
            InputStream pem = new ByteArrayInputStream(server.trusted.getBytes(StandardCharsets.US_ASCII));
            Iterator all = CertificateFactory.getInstance("X.509").generateCertificates(pem).iterator();
            for (int i = 0; all.hasNext(); i++) known.setCertificateEntry("c" + i, (Certificate) all.next());
            TrustManagerFactory trust = TrustManagerFactory.getInstance(TrustManagerFactory.getDefaultAlgorithm());
            trust.init(known);
            SSLContext context = SSLContext.getInstance("TLSv1.3");
            context.init(null, trust.getTrustManagers(), null);
            SSLSocket made = (SSLSocket) context.getSocketFactory().createSocket(raw, server.host, server.port, true);
            SSLParameters wanted = made.getSSLParameters();
            wanted.setProtocols(new String[] {"TLSv1.3"});
            wanted.setEndpointIdentificationAlgorithm("HTTPS"); // the certificate is for this host
            made.setSSLParameters(wanted);
            made.startHandshake();
            return made;
        }

        @Override void send(ByteBuffer bytes) throws IOException {
            out.write(bytes.array(), bytes.arrayOffset() + bytes.position(), bytes.remaining());
            out.flush();
        }

        @Override void fill(ByteBuffer into) throws IOException {
            while (into.hasRemaining()) {
                int got = in.read(piece, 0, Math.min(piece.length, into.remaining()));
                if (got < 0) throw new IOException("the server closed the connection");
                into.put(piece, 0, got);
            }
        }

        @Override void close() {
            try {
                socket.close();
            } catch (IOException error) {
                // it is given up in any case
            }
        }
    }
}
