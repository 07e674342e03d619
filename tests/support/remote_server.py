"""A web server and a store of S3 for tests, over the files of a folder.

    remote_server.py ROOT PORT_FILE LOG [fault...]

/NAME is a file of ROOT; /s3/BUCKET/KEY is the file ROOT/BUCKET/KEY of a store whose requests are signed with
KEY, SECRET and TOKEN below, and /s3/BUCKET?list-type=2 lists keys, three a page. PORT_FILE gets the port; LOG a line
for each answer: status, path, range, bytes.

Faults, by the number of the request alone: "flaky": three of ten fail, in turn by status 503, by closing the
connection, and by sending a part of the answer; another one of ten comes in small pieces. "whole": no ranges.
"part=HOW": answers to ranges
are wrong: "bare" (no Content-Range), "shifted", "sizeless", "longer". "gone=NAME": 404 for files of this name, though
they are listed. "deny": 403. "stall=N": from the Nth request on, nothing is answered until the file ROOT/.go exists, and LOG says "stalled". "hold": nothing is
answered while the file ROOT/.hold exists, and LOG says "held". "untagged": no
ETag and no Last-Modified.
"""
import hashlib
import hmac
import http.server
import os
import re
import sys
import threading
import time
import urllib.parse
import xml.sax.saxutils

KEY, SECRET, TOKEN, REGION = "TESTKEY", "testsecret/+x", "testtoken==", "test-region-1"


def sign(key, text):
    return hmac.new(key, text.encode(), hashlib.sha256).digest()


class Server(http.server.ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, *_):
        pass  # who asked may have been killed


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *_):
        pass

    def do_GET(self):
        server = self.server
        with server.lock:
            server.number += 1
            number = server.number
        fault = None
        if "flaky" in server.faults:
            fault = {1: "status", 4: "close", 7: "cut", 9: "slow"}.get(number % 10)
        for name in server.faults:
            if name.startswith("stall=") and number >= int(name[6:]):
                self.note("stalled", 0)
                while not os.path.exists(os.path.join(server.root, ".go")):
                    time.sleep(0.01)
        while "hold" in server.faults and os.path.exists(os.path.join(server.root, ".hold")):
            if fault != "held":
                self.note("held", 0)
            fault = "held"
            time.sleep(0.01)
        if fault == "status":
            return self.answer(503, b"busy", {})
        if fault == "close":
            self.note(0, 0)
            self.close_connection = True
            return None
        path, _, query = self.path.partition("?")
        if path.startswith("/s3/"):
            problem = self.check_signature(path, query)
            if problem:
                return self.answer(403, f"<Error><Code>{problem}</Code><AWSAccessKeyId>{KEY}</AWSAccessKeyId></Error>".encode(), {})
            if "list-type=2" in query:
                return self.list(path, urllib.parse.parse_qs(query, keep_blank_values=True))
            path = path[3:]
        if "deny" in server.faults:
            return self.answer(403, b"<Error><Code>AccessDenied</Code></Error>", {})
        return self.send_file(os.path.join(server.root, urllib.parse.unquote(path).lstrip("/")), fault)

    def send_file(self, path, fault):
        if not os.path.isfile(path) or f"gone={os.path.basename(path)}" in self.server.faults:
            return self.answer(404, b"<Error><Code>NoSuchKey</Code></Error>", {})
        with open(path, "rb") as file:
            data = file.read()
        tag = '"' + hashlib.md5(data).hexdigest() + '"'
        headers = {} if "untagged" in self.server.faults else {"ETag": tag}
        if self.headers.get("If-None-Match") == tag:
            return self.answer(304, b"", headers)
        if self.headers.get("If-Match", tag) != tag:
            return self.answer(412, b"<Error><Code>PreconditionFailed</Code></Error>", headers)
        asked = re.fullmatch(r"bytes=(\d+)-(\d+)", self.headers.get("Range", ""))
        if not asked or "whole" in self.server.faults:
            return self.answer(200, data, headers, fault)
        first, last = int(asked[1]), min(int(asked[2]), len(data) - 1)
        if first >= len(data):
            headers["Content-Range"] = f"bytes */{len(data)}"
            return self.answer(416, b"", headers)
        headers["Content-Range"] = f"bytes {first}-{last}/{len(data)}"
        body = data[first : last + 1]
        if "part=bare" in self.server.faults:
            del headers["Content-Range"]
        elif "part=shifted" in self.server.faults:
            headers["Content-Range"] = f"bytes {first + 1}-{last + 1}/{len(data)}"
        elif "part=sizeless" in self.server.faults:
            headers["Content-Range"] = f"bytes {first}-{last}/*"
        elif "part=longer" in self.server.faults:
            body += bytes(1 << 18)
        return self.answer(206, body, headers, fault)

    def note(self, status, size):
        with self.server.lock:
            self.server.log.write(f"{status} {self.path} {self.headers.get('Range', '-')} {size}\n")
            self.server.log.flush()

    def answer(self, status, body, headers, fault=None):
        self.note(status if fault != "cut" else 0, len(body))
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        if status != 304:
            self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if status == 304:
            return
        if fault == "cut":
            self.wfile.write(body[: len(body) // 2])
            self.close_connection = True
        elif fault == "slow":
            for i in range(0, len(body), 1 << 14):
                self.wfile.write(body[i : i + (1 << 14)])
                self.wfile.flush()
        else:
            self.wfile.write(body)

    def list(self, path, query):
        bucket = path.split("/")[2]
        top = os.path.join(self.server.root, bucket)
        prefix = query["prefix"][0]
        keys = []
        for folder, _, names in os.walk(top):
            keys += [os.path.relpath(os.path.join(folder, name), top) for name in names]
        keys = sorted(k for k in keys if k.startswith(prefix))
        after = query.get("continuation-token", [""])[0]
        keys = [k for k in keys if k > after]
        parts = ['<?xml version="1.0"?><ListBucketResult xmlns="http://s3.amazonaws.com/doc/2006-03-01/">']
        for key in keys[:3]:
            with open(os.path.join(top, key), "rb") as file:
                data = file.read()
            name = xml.sax.saxutils.escape(key)
            tag = hashlib.md5(data).hexdigest()
            parts.append(
                f"<Contents><Key>{name}</Key><ETag>&quot;{tag}&quot;</ETag><Size>{len(data)}</Size></Contents>"
            )
        more = len(keys) > 3
        parts.append(f"<IsTruncated>{str(more).lower()}</IsTruncated>")
        if more:
            parts.append(f"<NextContinuationToken>{xml.sax.saxutils.escape(keys[2])}</NextContinuationToken>")
        return self.answer(200, ("".join(parts) + "</ListBucketResult>").encode(), {})

    def check_signature(self, path, query):
        """The code of an error, or None; computed apart from the program's."""
        given = self.headers.get("Authorization", "")
        match = re.fullmatch(
            r"AWS4-HMAC-SHA256 Credential=([^/]+)/(\d{8})/([^/]+)/s3/aws4_request,\s*SignedHeaders=([^,]+),\s*Signature=(\w+)",
            given,
        )
        if not match:
            return "AccessDenied"
        key, day, region, names, signature = match.groups()
        if key != KEY:
            return "InvalidAccessKeyId"
        if region != REGION:
            return "AuthorizationHeaderMalformed"
        if self.headers.get("x-amz-security-token") != TOKEN or "x-amz-security-token" not in names:
            return "InvalidToken"
        pairs = sorted(query.split("&")) if query else []
        headers = "".join(f"{n}:{self.headers[n].strip()}\n" for n in names.split(";"))
        body = self.headers["x-amz-content-sha256"]
        whole = f"GET\n{path}\n{'&'.join(pairs)}\n{headers}\n{names}\n{body}"
        date = self.headers["x-amz-date"]
        if not date.startswith(day):
            return "AuthorizationHeaderMalformed"
        scope = f"{day}/{region}/s3/aws4_request"
        text = f"AWS4-HMAC-SHA256\n{date}\n{scope}\n{hashlib.sha256(whole.encode()).hexdigest()}"
        own = sign(sign(sign(sign(("AWS4" + SECRET).encode(), day), region), "s3"), "aws4_request")
        return None if sign(own, text).hex() == signature else "SignatureDoesNotMatch"


def main():
    root, port_file, log = sys.argv[1:4]
    server = Server(("127.0.0.1", 0), Handler)
    server.root, server.faults, server.number = root, sys.argv[4:], 0
    server.lock = threading.Lock()
    with open(log, "a") as server.log:
        with open(port_file + ".new", "w") as file:
            file.write(str(server.server_address[1]))
        os.rename(port_file + ".new", port_file)
        server.serve_forever()


main()
