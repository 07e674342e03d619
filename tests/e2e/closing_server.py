"""A server of streams that ends a connection where a client may have sent its next request already, and says nothing of
it in the answer before: it takes the second request of every connection, and closes the connection without an answer.

usage: closing_server.py     prints its address, then serves until it is ended
"""
import json
import socketserver

EVENTS = [{"choices": [{"text": "a"}]}, {"choices": [{"text": "b"}]}, {"choices": [], "usage": {"completion_tokens": 2}}]


class Connection(socketserver.StreamRequestHandler):
    def take_request(self):
        length = 0
        while (line := self.rfile.readline().strip()) != b"":
            name, _, value = line.partition(b":")
            length = int(value) if name.lower() == b"content-length" else length
        self.rfile.read(length)

    def handle(self):
        self.take_request()
        body = "".join(f"data: {json.dumps(event)}\n\n" for event in EVENTS) + "data: [DONE]\n\n"
        self.wfile.write(f"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n{len(body):x}\r\n{body}\r\n0\r\n\r\n".encode())
        self.take_request()


class Server(socketserver.ThreadingTCPServer):
    daemon_threads = True
    request_queue_size = 64


with Server(("127.0.0.1", 0), Connection) as server:
    print(f"http://127.0.0.1:{server.server_address[1]}", flush=True)
    server.serve_forever()
