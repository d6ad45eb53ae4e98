#!/usr/bin/env python3
"""A bucket for tests: bucket.py PORT FOLDER ID SECRET. Objects are files; every request's signature is judged by itself."""
import hashlib
import hmac
import http.server
import os
import sys
import urllib.parse
from xml.sax.saxutils import escape

port, folder, key_id, secret = int(sys.argv[1]), sys.argv[2], sys.argv[3], sys.argv[4]


def keyed(key, text):
    return hmac.new(key, text.encode(), hashlib.sha256).digest()


def signature(method, path, query, headers, names, payload, scope, time):
    pairs = sorted(urllib.parse.parse_qsl(query, keep_blank_values=True))
    quoted = lambda text: urllib.parse.quote(text, safe="-_.~")
    canonical = "\n".join([
        method,
        path,
        "&".join(f"{quoted(name)}={quoted(value)}" for name, value in pairs),
        "".join(f"{name}:{headers[name].strip()}\n" for name in names),
        ";".join(names),
        payload,
    ])
    text = "\n".join(["AWS4-HMAC-SHA256", time, scope, hashlib.sha256(canonical.encode()).hexdigest()])
    key = ("AWS4" + secret).encode()
    for part in scope.split("/"):
        key = keyed(key, part)
    return keyed(key, text).hex()


class Bucket(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *_):
        pass

    def answer(self, code, body=""):
        self.send_response(code)
        self.send_header("Content-Length", str(len(body.encode())))
        self.end_headers()
        self.wfile.write(body.encode())

    def refused(self, code, name):
        self.answer(code, f"<Error><Code>{name}</Code><Message>as the test wants it</Message></Error>")

    def judged(self):
        """The body, if the request is signed as it should be."""
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        url = urllib.parse.urlsplit(self.path)
        words = self.headers.get("Authorization", "").removeprefix("AWS4-HMAC-SHA256 ").split(",")
        parts = dict(word.strip().split("=", 1) for word in words if "=" in word)
        if not parts.get("Credential", "").startswith(key_id + "/"):
            return self.refused(403, "InvalidAccessKeyId")
        payload = self.headers.get("x-amz-content-sha256", "")
        names = parts["SignedHeaders"].split(";")
        scope = parts["Credential"].split("/", 1)[1]
        made = signature(self.command, url.path, url.query, self.headers, names, payload, scope,
                         self.headers["x-amz-date"])
        if made != parts["Signature"] or not {"host", "x-amz-content-sha256", "x-amz-date"} <= set(names):
            return self.refused(403, "SignatureDoesNotMatch")
        if hashlib.sha256(body).hexdigest() != payload:
            return self.refused(400, "XAmzContentSHA256Mismatch")
        return url, body

    def file(self, url):
        return os.path.join(folder, urllib.parse.unquote(url.path).lstrip("/").replace("/", "|"))

    def do_PUT(self):
        if judged := self.judged():
            with open(self.file(judged[0]), "wb") as file:
                file.write(judged[1])
            self.answer(200)

    def do_DELETE(self):
        if judged := self.judged():
            os.remove(self.file(judged[0]))
            self.answer(204)

    def do_GET(self):
        """Pages of two."""
        if not (judged := self.judged()):
            return
        query = dict(urllib.parse.parse_qsl(judged[0].query))
        bucket = judged[0].path.strip("/") + "|"
        keys = sorted(name[len(bucket):].replace("|", "/") for name in os.listdir(folder) if name.startswith(bucket))
        keys = [key for key in keys if key.startswith(query.get("prefix", "")) and key > query.get("continuation-token", "")]
        size = lambda key: os.path.getsize(os.path.join(folder, bucket + key.replace("/", "|")))
        rows = "".join(f"<Contents><Key>{escape(key)}</Key><Size>{size(key)}</Size></Contents>" for key in keys[:2])
        more = f"<IsTruncated>true</IsTruncated><NextContinuationToken>{escape(keys[1])}</NextContinuationToken>" if len(keys) > 2 else ""
        self.answer(200, f"<ListBucketResult>{rows}{more}</ListBucketResult>")


http.server.ThreadingHTTPServer(("127.0.0.1", port), Bucket).serve_forever()
