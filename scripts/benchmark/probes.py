"""What a port answers to somebody without credentials."""
import http.client
import socket
import ssl


def ask(port, path, host="127.0.0.1", headers=None):
    """Status code of a request without a certificate; the server's is not judged here. None: nothing answers."""
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    connection = http.client.HTTPSConnection(host, port, timeout=10, context=context)
    try:
        connection.request("GET", path, headers=headers or {})
        return connection.getresponse().status
    except OSError:
        return None
    finally:
        connection.close()


def answers(port, host="127.0.0.1"):
    try:
        socket.create_connection((host, port), timeout=3).close()
        return True
    except OSError:
        return False


def weak_ciphers(port):
    """Whether a connection of ciphers without authenticated encryption, or of TLS before 1.2, comes about."""
    for weaken in (lambda c: c.set_ciphers("AES128-SHA:AES256-SHA:ECDHE-ECDSA-AES128-SHA:ECDHE-RSA-AES128-SHA"),
                   lambda c: setattr(c, "minimum_version", ssl.TLSVersion.TLSv1)):
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        try:
            context.maximum_version = ssl.TLSVersion.TLSv1_2
            weaken(context)
            if context.minimum_version == ssl.TLSVersion.TLSv1:
                context.maximum_version = ssl.TLSVersion.TLSv1_1
            with socket.create_connection(("127.0.0.1", port), timeout=10) as plain:
                with context.wrap_socket(plain) as secure:
                    return secure.cipher()[0]
        except (ssl.SSLError, OSError, ValueError):
            continue
    return None


def judge_ciphers(port):
    weak = weak_ciphers(port)
    return ("FAIL", f"{weak} is accepted") if weak else ("PASS", "only TLS 1.2 and 1.3 with authenticated ciphers")
