"""A server whose first answer is a stream of two tokens at once, whose second one is a token after half a second, and
whose later ones are failures: see FAILURES, then streams of nothing.

usage: odd_server.py     prints its address, then serves until it is ended
"""
import http.server
import json
import time

count = 0
ERROR = json.dumps({"error": {"message": "no such model"}})
FAILURES = {4: (404, ERROR), 5: (429, "slower\n\tplease"), 6: (404, "again"),
            7: (200, 'data: {"error": {"message": "lost"}}\n\n'), 8: (200, None)}


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_POST(self):
        global count
        count += 1
        self.rfile.read(int(self.headers["Content-Length"]))
        tokens = {1: 2, 2: 1}.get(count, 0)
        time.sleep(0.5 if count == 2 else 0.0)
        events = [{"choices": [{"text": "a"}]}] * tokens + [{"choices": [], "usage": {"completion_tokens": tokens}}]
        status, body = FAILURES.get(count, (200, ""))
        body = body or "".join(f"data: {json.dumps(event)}\n\n" for event in events) + "data: [DONE]\n\n"
        self.send_response(status)
        self.send_header("Content-Length", len(body) + (FAILURES.get(count) == (200, None)))
        self.end_headers()
        self.wfile.write(body.encode())
        self.close_connection = FAILURES.get(count) == (200, None)

    def log_message(self, *_):
        pass


with http.server.HTTPServer(("127.0.0.1", 0), Handler) as server:
    print(f"http://127.0.0.1:{server.server_address[1]}", flush=True)
    server.serve_forever()
